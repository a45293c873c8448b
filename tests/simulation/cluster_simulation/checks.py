"""What must hold: after every few steps, and at the end, when everything has been healed."""

from __future__ import annotations

from collections import defaultdict

from cluster_simulation.history import Anomaly, History, Place
from tidemark.raft.node import Node as RaftNode
from tidemark.simulation import Cluster


class Invariants:
    """Cheap enough to be looked at all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._images: dict[int, object] = {}
        self._controllers: dict[int, int] = {}  # by term

    def check(self) -> None:
        for broker in self._cluster.brokers.values():
            process, node = broker.process, broker.node
            if process is None or not process.is_alive or node is None or not hasattr(node, "_store"):
                continue
            if process.failures:
                raise Anomaly(f"{broker.name}: {process.failures[0]}")
            self._check_quorum(broker.name, node._store.driver.node)
            image = node._store.image
            if self._images.get(broker.node_id) is not image:
                self._images[broker.node_id] = image
                self._check_image(broker.name, image)
            if broker.is_ready:
                self._check_led(broker)

    def _check_quorum(self, name: str, member: RaftNode) -> None:
        if member.is_leader and self._controllers.setdefault(member.term, member.id) != member.id:
            raise Anomaly(f"{name}: node {self._controllers[member.term]} leads the quorum in term {member.term}, too")

    def _check_image(self, name: str, image: object) -> None:
        for topic in image.topics.values():  # type: ignore[attr-defined]
            for index, partition in enumerate(topic.partitions):
                if not set(partition.isr) <= set(partition.replicas):
                    raise Anomaly(f"{name}: {topic.name}-{index} has in-sync replicas that it has not: {partition}")
                if partition.leader >= 0:
                    key = (topic.topic_id, index, partition.leader_epoch)
                    if self._leaders.setdefault(key, partition.leader) != partition.leader:
                        raise Anomaly(f"{name}: {topic.name}-{index} has two leaders in epoch {partition.leader_epoch}")

    def _check_led(self, broker: object) -> None:
        node = broker.node  # type: ignore[attr-defined]
        table = node._replicas.table
        if not table.is_leased:
            return
        for partition in table.led():
            if partition.high_watermark > partition.log.end_offset:
                raise Anomaly(f"{broker.name}: {partition.topic}-{partition.index}: high watermark after the end")  # type: ignore[attr-defined]


def check_history(
    history: History, final: dict[Place, dict[int, bytes]], committed: dict[Place, dict[int, bytes]]
) -> None:
    """`final`: everything that is in the logs; `committed`: what read_committed is shown."""
    where: dict[bytes, tuple[Place, int]] = {}
    for place, records in final.items():
        for offset, value in records.items():
            if value in where:
                raise Anomaly(f"{value[:40]!r} is there twice: {where[value]} and {(place, offset)}")
            where[value] = (place, offset)
    for place, seen in history.read.items():
        for offset, value in seen.items():
            if final[place].get(offset) != value:
                raise Anomaly(
                    f"{place} offset {offset} was read as {value[:40]!r}, and is {final[place].get(offset)!r} now"
                )
    shown = {value for records in committed.values() for value in records.values()}
    by_transaction: dict[int, set[bool]] = defaultdict(set)
    for value, sent in history.sent.items():
        if sent.offset is not None:
            if value not in where:
                raise Anomaly(f"{value[:40]!r}, acknowledged at {sent.place} offset {sent.offset}, is lost")
            if where[value] != (sent.place, sent.offset):
                raise Anomaly(f"{value[:40]!r}, acknowledged at {(sent.place, sent.offset)}, is at {where[value]}")
        if sent.transaction is not None:
            if sent.offset is not None:
                by_transaction[sent.transaction].add(value in shown)
        elif value in where and value not in shown:
            raise Anomaly(f"{value[:40]!r} is hidden from read_committed")
    for number, seen_ in by_transaction.items():
        outcome = history.decided.get(number)
        if len(seen_) > 1:
            raise Anomaly(f"transaction {number} ({outcome}) is shown in part")
        if (outcome == "committed" and False in seen_) or (outcome in ("aborted", None) and True in seen_):
            raise Anomaly(f"transaction {number} is {outcome}, and {'' if True in seen_ else 'not '}shown")
    _check_order(history, final)


def _check_order(history: History, final: dict[Place, dict[int, bytes]]) -> None:
    for place, records in final.items():
        last: dict[str, int] = {}
        for offset in sorted(records):
            sent = history.sent[records[offset]]
            if sent.number <= last.get(sent.producer, -1):
                raise Anomaly(f"{place} offset {offset}: {sent.producer}'s record {sent.number} follows a later one")
            last[sent.producer] = sent.number
