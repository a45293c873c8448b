"""Leaders and controllers die, stand still, or are restarted: what was acknowledged stays, and it serves on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cluster.chaos import SERVES_AGAIN_SECONDS_MAX, run
from cluster.nemesis import Kill, KillController, Pause, RollingRestart
from confluent_kafka import Producer
from harness.batches import batch_of
from harness.cluster import Cluster
from harness.errors import Error
from harness.requests import end_offset, produce
from harness.waiting import eventually
from harness.wire import Closed, Wire

QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}

NewCluster = Callable[..., Cluster]


def send(cluster: Cluster, topic: str, value: bytes, *, partition: int = 0) -> int:
    """Returns the offset. Idempotent: a retry after a lost answer must not count as a second record."""
    told: list[tuple[object, int | None]] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, message: told.append((error, message.offset()))
    )
    producer.flush(30)
    ((error, offset),) = told
    assert error is None, error
    assert offset is not None
    return offset


def test_a_topic_is_led_by_all_and_known_to_all(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    cluster.create_topic("t", partitions=6)
    assert sorted(cluster.leaders("t").values()) == [1, 1, 2, 2, 3, 3]
    for partition in range(6):
        assert send(cluster, "t", b"x", partition=partition) == 0
    for node in cluster:
        with Wire(node.host, node.port) as wire:
            led = [index for index, leader in cluster.leaders("t").items() if leader == node.node_id]
            for partition in range(6):
                answer = produce(wire, "t", batch_of(b"y"), partition=partition)
                assert answer.error_code == (0 if partition in led else Error.NOT_LEADER_OR_FOLLOWER)


def test_nothing_acknowledged_is_lost_when_nodes_are_killed_stopped_and_restarted(new_cluster: NewCluster) -> None:
    """The short mix; `make chaos MINUTES=n` runs the long one."""
    cluster = new_cluster()
    faults = [Kill((0.0, 2.0)), KillController(), Pause((0.2, 2.0)), RollingRestart()]
    outcome = run(cluster, faults, seconds=25, seed=1)
    assert outcome.report.is_clean, str(outcome)
    assert outcome.report.acknowledged > 1_000, outcome
    assert outcome.report.longest_gap < SERVES_AGAIN_SECONDS_MAX, str(outcome)


def test_a_leader_that_wakes_up_after_its_session_neither_takes_nor_serves(new_cluster: NewCluster) -> None:
    cluster = new_cluster(QUICK)
    cluster.create_topic("t", min_insync_replicas="1")
    send(cluster, "t", b"before")
    old = cluster.nodes[cluster.leaders("t")[0]]
    with (
        Wire(old.host, old.port) as writer,
        Wire(old.host, old.port) as reader,
        Wire(old.host, old.port) as asker,
    ):
        assert end_offset(reader, "t") == 1
        old.pause()
        eventually(lambda: cluster.leaders("t").get(0, old.node_id) != old.node_id, seconds_max=20)
        assert send(cluster, "t", b"after") == 1
        # These lie in its sockets when it wakes up: it reads them before any timer of its own has run.
        asked = writer.ask("Produce", 9, transactional_id=None, acks=1, timeout_ms=10_000, topic_data=[
            {"name": "t", "partition_data": [{"index": 0, "records": batch_of(b"zombie")}]}
        ])  # fmt: skip
        looked = reader.ask("ListOffsets", 6, replica_id=-1, isolation_level=0, topics=[
            {"name": "t", "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}
        ])  # fmt: skip
        wondered = asker.ask("Metadata", 9, topics=[{"name": "t"}], allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip
        old.resume()
        answer = writer.answer("Produce", 9, correlation_id=asked).responses[0].partition_responses[0]
        assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
        listed = reader.answer("ListOffsets", 6, correlation_id=looked).topics[0].partitions[0]
        assert listed.error_code == Error.NOT_LEADER_OR_FOLLOWER
        with contextlib.suppress(Closed):  # or it says that it does not know
            told = asker.answer("Metadata", 9, correlation_id=wondered).topics[0].partitions[0]
            assert told.leader_id != old.node_id, "who believed it would come back to it"
    cluster.await_in_sync("t")
    assert send(cluster, "t", b"last") == 2


def test_with_too_few_in_sync_writes_are_refused_and_taken_again_later(new_cluster: NewCluster) -> None:
    cluster = new_cluster(QUICK)
    cluster.create_topic("t", min_insync_replicas="3")
    leader = cluster.nodes[cluster.leaders("t")[0]]
    other = next(node for node in cluster if node is not leader)
    other.kill()
    eventually(lambda: len(cluster.in_sync("t")[0]) == 2, seconds_max=30)
    leader = cluster.nodes[cluster.leaders("t")[0]]
    with Wire(leader.host, leader.port) as wire:
        assert produce(wire, "t", batch_of(b"x"), acks=-1).error_code == Error.NOT_ENOUGH_REPLICAS
        assert produce(wire, "t", batch_of(b"y"), acks=1).error_code == 0
        assert end_offset(wire, "t") == 0, "what too few have is not committed"
        other.start()
        cluster.await_in_sync("t")
        assert produce(wire, "t", batch_of(b"z"), acks=-1).error_code == 0
        assert end_offset(wire, "t") == 2


def test_all_nodes_die_at_once_and_come_back(new_cluster: NewCluster) -> None:
    cluster = new_cluster(QUICK)
    cluster.create_topic("t", partitions=3, min_insync_replicas="2")
    for number in range(30):
        send(cluster, "t", b"%d" % number, partition=number % 3)
    for node in cluster:
        node.kill()
    cluster.start()
    cluster.await_in_sync("t")
    assert [send(cluster, "t", b"more", partition=partition) for partition in range(3)] == [10, 10, 10]
