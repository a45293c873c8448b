"""HTTP clients that write and read without a pause while each node in turn is killed and started again: a topic that
exists is never told as missing, errors say when to try again, and what was acknowledged is there once, in order."""

from __future__ import annotations

import itertools
import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness.broker_log import check_log
from harness.cluster import Cluster
from harness.http_cluster import FAST, HttpNode
from harness.waiting import eventually

TOPIC = "orders"
PARTITIONS = 6
ROUNDS = 2
SECONDS_MAX = 25  # for one node to be missed, and to come back
PAUSE_SECONDS = 0.01  # of each client, between its requests: the nodes have two processors together
RETRIABLE = {503, 504}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    cluster: Any = Cluster(tmp_path, settings=FAST, make=HttpNode)
    cluster.start()
    yield cluster
    cluster.close()
    for node in cluster:
        node.http.close()
        check_log(node)


class Load:
    """What clients saw so far, and whether they go on."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.over = threading.Event()
        self.refusals: Counter[str] = Counter()
        self.faults: list[str] = []  # answers that nobody should get
        self.acknowledged: dict[int, list[tuple[int, str]]] = {index: [] for index in range(PARTITIONS)}
        self.seen: dict[int, dict[int, str]] = {index: {} for index in range(PARTITIONS)}  # by readers

    def look_at(self, answer: httpx.Response) -> bool:
        """Whether it is a good one. One that is not must be a problem document that says when to try again."""
        if answer.status_code in (200, 204, 207):
            return True
        request, shown = answer.request, f"{answer.status_code} {answer.headers} {answer.text[:500]}"
        self.refusals[f"{request.method} {answer.status_code} {answer.text[-150:]}"] += 1
        is_problem = answer.headers["content-type"] == "application/problem+json"
        if not is_problem or answer.status_code not in RETRIABLE or answer.json()["status"] != answer.status_code:
            self.faults.append(f"{request.method} {request.url}: {shown}")
        elif not answer.headers.get("retry-after", "").isdigit():
            self.faults.append(f"{request.method} {request.url} does not say when to try again: {shown}")
        return False

    def has_seen(self, partition: int, offset: int, value: str) -> None:
        if self.seen[partition].setdefault(offset, value) != value:
            self.faults.append(f"{partition}@{offset} was {self.seen[partition][offset]}, and is {value}")


class Client(ABC):
    """Asks one node after the other, also those that are down or just starting."""

    def __init__(self, load: Load, number: int) -> None:
        self.load = load
        self.number = number
        self._clients = [httpx.Client(base_url=url, trust_env=False, timeout=10) for url in load.urls]
        self._nodes = itertools.cycle(self._clients[number % 3 :] + self._clients[: number % 3])

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a good answer; None: try again."""
        try:
            answer = next(self._nodes).request(method, path, **options)
        except httpx.HTTPError:
            return None
        if not self.load.look_at(answer):
            return None
        return answer.json() if answer.content else {}

    def run(self) -> None:
        while not self.load.over.is_set():
            self.step()
            self.load.over.wait(PAUSE_SECONDS)
        for client in self._clients:
            client.close()

    @abstractmethod
    def step(self) -> None:
        """What it does again and again."""


class Writer(Client):
    """A request after the other, each with a key of its own and again until it is acknowledged. Of three writers one
    writes to all partitions at once, one to a partition of its own, and one lets the broker choose."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(load, number)
        self._count = 0
        self._wishes = [
            [{"partition": index} for index in range(PARTITIONS)],
            [{"partition": number % PARTITIONS}] * 2,
            [{}],
        ][number % 3]

    def step(self) -> None:
        value = f"{self.number}-{self._count}"
        body = {"records": [wish | {"value": f"{value}-{place}"} for place, wish in enumerate(self._wishes)]}
        key = {"Idempotency-Key": f"key {value}"}
        answer = self.ask("POST", f"/topics/{TOPIC}/records", json=body, headers=key)
        if answer is None:
            return
        failed = [each for each in answer["offsets"] if "error" in each]
        self.load.faults += [f"in a 207: {each}" for each in failed if each["status"] not in RETRIABLE]
        if failed:
            self.load.refusals[f"in a 207: {failed[0]}"] += 1
            return
        for place, each in enumerate(answer["offsets"]):
            self.load.acknowledged[each["partition"]].append((each["offset"], f"{value}-{place}"))
        self._count += 1


class Reader(Client):
    """Polls the partitions in turn."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(load, number)
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self._turns = itertools.cycle(range(PARTITIONS))

    def step(self) -> None:
        index = next(self._turns)
        query = {"offset": self._positions[index], "wait_ms": 20}
        answer = self.ask("GET", f"/topics/{TOPIC}/partitions/{index}/records", params=query)
        for each in answer["records"] if answer else ():
            if each["offset"] != self._positions[index]:
                self.load.faults.append(f"{index}: {each['offset']} came for {self._positions[index]}")
            self.load.has_seen(index, each["offset"], each["value"])
            self._positions[index] = each["offset"] + 1


class Follower(Client):
    """Reads a stream of events, and another where that broke off."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(load, number)
        self._last_id = ""
        self._positions: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)

    def step(self) -> None:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last_id} if self._last_id else {})}
        try:
            with next(self._nodes).stream("GET", f"/topics/{TOPIC}/stream", headers=headers) as answer:
                if answer.status_code == 200:
                    self._follow(answer)
                else:
                    answer.read()
                    self.load.look_at(answer)
        except httpx.HTTPError:
            pass

    def _follow(self, answer: httpx.Response) -> None:
        positions = dict(self._positions)
        for line in answer.iter_lines():
            name, _, text = line.partition(": ")
            if name == "event":
                self.load.faults.append(f"the stream ended: {line}")
            elif name == "data":
                record = json.loads(text)
                index, offset = record["partition"], record["offset"]
                if offset != positions[index]:
                    self.load.faults.append(f"in a stream {index}@{offset} came for {positions[index]}")
                self.load.has_seen(index, offset, record["value"])
                positions[index] = offset + 1
            elif name == "id":
                self._last_id = text
            elif not line and self._last_id:
                stood = dict(pair.split("=") for pair in self._last_id.split(","))
                self._positions = {int(index): int(offset) for index, offset in stood.items()}
            if self.load.over.is_set():
                return


class Describer(Client):
    """Asks for what a dashboard would ask."""

    def step(self) -> None:
        described = self.ask("GET", f"/topics/{TOPIC}")
        if described is not None and len(described["partitions"]) != PARTITIONS:
            self.load.faults.append(f"described as {described}")
        listed = self.ask("GET", "/topics")
        if listed is not None and TOPIC not in json.dumps(listed):
            self.load.faults.append(f"listed as {listed}")
        for path in (f"/topics/{TOPIC}/configs", "/cluster", "/groups"):
            self.ask("GET", path)


class OffsetKeeper(Client):
    """Sets offsets of a group, and looks whether they are what was set last."""

    def __init__(self, load: Load, number: int) -> None:
        super().__init__(load, number)
        self._set = 0

    def step(self) -> None:
        offsets = [{"topic": TOPIC, "partition": 0, "offset": self._set + 1}]
        if self.ask("PUT", "/groups/keeper/offsets", json={"offsets": offsets}) is not None:
            self._set += 1
            found = self.ask("GET", "/groups/keeper/offsets")
            if found is not None and found["offsets"][0]["offset"] != self._set:
                self.load.faults.append(f"offset {self._set} was set, and {found} is told")


def test_every_node_is_killed_and_comes_back_while_clients_write_and_read(cluster: Any) -> None:
    cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    load = Load([node.url for node in cluster])
    kinds = [Writer] * 6 + [Reader] * 2 + [Follower] * 2 + [Describer, OffsetKeeper]
    clients = [kind(load, number) for number, kind in enumerate(kinds)]
    with ThreadPoolExecutor(len(clients)) as threads:
        running = [threads.submit(client.run) for client in clients]
        try:
            for _ in range(ROUNDS):
                for node in cluster:
                    take_down_and_up(cluster, node, load)
        finally:
            load.over.set()
        for each in running:
            each.result()
    assert not load.faults, "\n".join(load.faults[:20])
    check_log_of_topic(cluster, load)


def take_down_and_up(cluster: Any, node: HttpNode, load: Load) -> None:
    await_writes(load)
    node.kill()
    await_writes(load)  # the others go on
    node.begin()
    eventually(lambda: answers(node), seconds_max=SECONDS_MAX)
    node.kill()  # while it joins the cluster: its HTTP listener is open by then
    node.start()
    eventually(lambda: all(len(each) == 3 for each in cluster.in_sync(TOPIC).values()), seconds_max=SECONDS_MAX)
    await_writes(load)


def answers(node: HttpNode) -> bool:
    try:
        return node.http.get("/livez").status_code == 200
    except httpx.HTTPError:
        return False


def await_writes(load: Load) -> None:
    """Something is acknowledged in every partition that was not before."""
    before = {index: len(each) for index, each in load.acknowledged.items()}
    eventually(
        lambda: load.faults or all(len(each) > before[index] for index, each in load.acknowledged.items()),
        seconds_max=SECONDS_MAX,
    )


def check_log_of_topic(cluster: Any, load: Load) -> None:
    """What lies in the partitions, by a node's own word, against what writers were told and readers saw."""
    node = next(iter(cluster))
    for index, acknowledged in load.acknowledged.items():
        values = all_values(node, index)
        found = dict(enumerate(values))
        assert [value for value, count in Counter(values).items() if count > 1] == [], "written once per key"
        assert {offset: value for offset, value in acknowledged if found.get(offset) != value} == {}
        assert {offset: value for offset, value in load.seen[index].items() if found.get(offset) != value} == {}
        written: dict[str, list[tuple[int, int]]] = {}
        for value in values:
            writer, number, place = value.split("-")
            written.setdefault(writer, []).append((int(number), int(place)))
        for writer, numbers in written.items():
            assert numbers == sorted(numbers), f"writer {writer} in {index}"


def all_values(node: HttpNode, index: int) -> list[str]:
    values: list[str] = []
    while True:
        answer = node.http.get(f"/topics/{TOPIC}/partitions/{index}/records", params={"offset": len(values)})
        assert answer.status_code == 200, answer.text
        if not answer.json()["records"]:
            return values
        values += [each["value"] for each in answer.json()["records"]]
