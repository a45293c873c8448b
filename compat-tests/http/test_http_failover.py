"""HTTP in a cluster whose nodes are killed: keys make retries safe, streams and consumers go on, metrics are told."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from harness.cluster import Cluster
from harness.http_cluster import FAST, HttpNode

SECONDS_MAX = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    cluster: Any = Cluster(tmp_path_factory.mktemp("cluster"), settings=FAST, make=HttpNode)
    cluster.start()
    yield cluster
    for node in cluster:
        node.http.close()
    cluster.close()


def eventually(what: Callable[[], Any]) -> Any:
    """What it returns, once that is something; errors of nodes that are down are passed over."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError, KeyError):
            if found := what():
                return found
        time.sleep(0.05)
    raise AssertionError("it took too long")


def topic_with(cluster: Cluster, name: str, *, partitions: int = 1) -> None:
    node = next(iter(cluster))
    settings = {
        "name": name,
        "partitions": partitions,
        "replication_factor": 3,
        "configs": {"min.insync.replicas": "2"},
    }
    assert node.http.post("/topics", json=settings).status_code == 201
    for each in cluster:
        eventually(lambda each=each: len(in_sync(each, name)) == 3)


def in_sync(node: HttpNode, topic: str) -> list[int]:
    found: list[int] = node.http.get(f"/topics/{topic}").json()["partitions"][0]["isr"]
    return found


def leader_of(node: HttpNode, topic: str) -> int:
    found: int = node.http.get(f"/topics/{topic}").json()["partitions"][0]["leader"]
    return found


def test_a_key_makes_a_retry_safe_at_another_node_and_after_the_leader_was_killed(cluster: Any) -> None:
    topic_with(cluster, "keyed")
    nodes = dict(cluster.nodes)
    body = {"records": [{"value": "once"}, {"value": "and once"}]}

    def send(node: HttpNode, key: str = "k") -> httpx.Response:
        return node.http.post("/topics/keyed/records", json=body, headers={"Idempotency-Key": key})

    first = send(nodes[1])
    assert first.status_code == 200, first.text
    assert {send(node).text for node in nodes.values()} == {first.text}, "every node answers as the first"
    leader = leader_of(nodes[1], "keyed")
    dying = threading.Thread(target=nodes[leader].kill)
    others = [node for node_id, node in nodes.items() if node_id != leader]
    dying.start()  # this request meets the failover, whichever way it goes
    eventually(lambda: send(others[0], "while it dies").status_code == 200)
    dying.join()
    for node in others:
        assert eventually(lambda node=node: (answer := send(node)).status_code == 200 and answer).text == first.text
        assert eventually(lambda node=node: send(node, "while it dies").status_code == 200)
    read = others[1].http.get("/topics/keyed/partitions/0/records").json()["records"]
    assert [each["value"] for each in read] == ["once", "and once"] * 2
    nodes[leader].start()
    assert eventually(lambda: (answer := send(nodes[leader])).status_code == 200 and answer).text == first.text
    other = nodes[leader].http.post("/topics/keyed/records", json={"value": 1}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 422


def test_streams_consumers_and_scrapes_go_on_when_the_leader_is_killed(cluster: Any) -> None:
    topic_with(cluster, "streamed")
    nodes: dict[int, HttpNode] = dict(cluster.nodes)
    leader = leader_of(nodes[1], "streamed")
    others = [node for node_id, node in nodes.items() if node_id != leader]
    assert others[0].http.post("/topics/streamed/records", json={"value": 0}).status_code == 200
    got: list[Any] = []

    def read_stream() -> None:
        with others[0].http.stream("GET", "/topics/streamed/stream") as stream:
            for line in stream.iter_lines():
                if line:
                    got.append(json.loads(line)["value"])
                if got[-1:] == [2]:
                    return

    reading = threading.Thread(target=read_stream)
    reading.start()
    url = others[1].http.post("/groups/g/consumers", json={"auto_commit": True}).json()["url"]
    assert eventually(
        lambda: others[1].http.put(f"{url}/subscription", json={"topics": ["streamed"]}).status_code == 204
    )
    polled: list[Any] = []

    def poll() -> list[Any]:
        answer = others[1].http.get(f"{url}/records", params={"wait_ms": 1000})
        polled.extend(each["value"] for each in answer.json().get("records", ()))
        return polled

    assert eventually(lambda: poll() == [0])
    eventually(lambda: got == [0])
    assert others[0].http.post("/topics/streamed/records", json={"value": 1}).status_code == 200
    nodes[leader].kill()
    scrapes = [scrape(node) for node in others for _ in range(3)]
    assert all("kafka_server_replicamanager_partitioncount" in each for each in scrapes)
    eventually(lambda: leader_of(others[0], "streamed") not in (leader, -1))
    sent = eventually(lambda: (answer := others[1].http.post("/topics/streamed/records", json={"value": 2})) and answer)
    assert sent.status_code == 200, sent.text
    reading.join(SECONDS_MAX)
    assert got == [0, 1, 2], "nothing is lost or told twice"
    assert eventually(lambda: poll()[-1:] == [2])
    assert polled == [0, 1, 2]
    assert "kafka_server_replicamanager_underreplicatedpartitions" in scrape(others[0])
    nodes[leader].start()


def test_groups_are_listed_by_those_who_answer_while_a_dead_node_is_not_known_for_one(cluster: Any) -> None:
    """Kafka's Admin likewise has `valid` and `errors` in a `ListGroupsResult`."""
    topic_with(cluster, "listed")
    nodes: dict[int, HttpNode] = dict(cluster.nodes)
    wish = {"offsets": [{"topic": "listed", "partition": 0, "offset": 0}]}
    eventually(lambda: nodes[1].http.put("/groups/listed/offsets", json=wish).status_code == 204)
    whole = eventually(lambda: (answer := nodes[1].http.get("/groups")).status_code == 200 and answer).json()
    assert "errors" not in whole
    coordinator = next(each["coordinator"] for each in whole["groups"] if each["group"] == "listed")
    dead = next(node_id for node_id in nodes if node_id != coordinator)
    nodes[dead].kill()
    asked = nodes[coordinator].http.get("/groups")
    assert asked.status_code == 207, asked.text
    assert [(each["broker"], each["error"]) for each in asked.json()["errors"]] == [(dead, "BROKER_NOT_AVAILABLE")]
    assert "listed" in [each["group"] for each in asked.json()["groups"]]
    fenced = eventually(lambda: (answer := nodes[coordinator].http.get("/groups")).status_code == 200 and answer)
    assert "listed" in [each["group"] for each in fenced.json()["groups"]]
    nodes[dead].start()


def scrape(node: HttpNode) -> str:
    answer = node.http.get("/metrics")
    assert answer.status_code == 200
    return answer.text


def test_a_client_does_not_wait_longer_for_a_leader_that_stands_still_than_others_take_to_know(cluster: Any) -> None:
    topic_with(cluster, "still")
    nodes: dict[int, HttpNode] = dict(cluster.nodes)
    leader = leader_of(nodes[1], "still")
    other = next(node for node_id, node in nodes.items() if node_id != leader)
    assert other.http.post("/topics/still/records", json={"value": "before"}).status_code == 200
    nodes[leader].pause()
    try:
        read = other.http.get("/topics/still/partitions/0/records?offset=0", timeout=20)  # it waits 30 s for an answer
        assert read.status_code == 200, read.text
        assert [each["value"] for each in read.json()["records"]] == ["before"]
    finally:
        nodes[leader].resume()
