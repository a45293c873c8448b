"""What must hold at every moment, whatever has failed: cheap enough to be looked at all the time."""

from __future__ import annotations

from typing import Any, Final

from cluster_simulation import memory
from cluster_simulation.history import Anomaly
from tidemark.broker.metadata.image import Image
from tidemark.raft.node import Node as RaftNode
from tidemark.simulation import Broker, Cluster, Process

IMAGES_KEPT: Final = 500


class Invariants:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        self._images: dict[int, object] = {}  # by node: the last one looked at
        self._decided: dict[int, Any] = {}  # by index of the quorum's log: the image after it
        self._newest: Any = Image()  # of all that any node has applied
        self._newest_index = 0
        self._controllers: dict[int, int] = {}  # by term
        self._saved: dict[tuple[Broker, int], tuple[int, int | None]] = {}  # term and vote on a disk
        self._high_watermarks: dict[Any, int] = {}  # by leadership: each is an object of its own

    def check(self) -> None:
        for broker in self._cluster.brokers.values():
            process, node = broker.process, broker.node
            if process is None or not process.is_alive or node is None or not hasattr(node, "_store"):
                continue
            if process.failures:
                raise Anomaly(f"{broker.name}: {process.failures[0]}")
            if node._store.driver is not None and self._is_of(process, node):
                self._check_quorum(broker, node._store.driver.node)
                self._check_image(broker, node._store)
        for broker in self._cluster.brokers.values():
            if broker.is_ready and broker.process is not None and broker.process.is_alive:
                self._check_led(broker, broker.process)
                memory.check_bounds(broker)

    def _is_of(self, process: Process, node: Any) -> bool:
        """Not what is left of the process before it."""
        return node._store.driver._loop is process.loop

    # The quorum

    def _check_quorum(self, broker: Broker, member: RaftNode) -> None:
        if member.is_leader and self._controllers.setdefault(member.term, member.id) != member.id:
            other = self._controllers[member.term]
            raise Anomaly(f"{broker.name}: node {other} leads the quorum in term {member.term}, too")
        disk = broker, broker.machine.disk.replaced
        term, vote = self._saved.get(disk, (0, None))
        if member.term < term:
            raise Anomaly(f"{broker.name} has forgotten term {term}: it is in {member.term}")
        if member.term == term and vote is not None and member.vote != vote:
            raise Anomaly(f"{broker.name} has forgotten its vote in term {term}: {vote}, and now {member.vote}")
        if member._saving_since is None and not member._hard_state_changed():
            self._saved[disk] = member.term, member.vote

    def _check_image(self, broker: Broker, store: Any) -> None:
        image = store.image
        if self._images.get(broker.node_id) is image:
            return
        self._images[broker.node_id] = image
        index = store.driver.applied_index
        if index >= self._newest_index:
            self._newest_index, self._newest = index, image
        known = self._decided.setdefault(index, image)
        if known is not image and (known.topics != image.topics or known.brokers != image.brokers):
            raise Anomaly(f"{broker.name}: after entry {index} its image is not what it is on another node")
        if len(self._decided) > IMAGES_KEPT:
            del self._decided[next(iter(self._decided))]
        for topic in image.topics.values():
            for at, partition in enumerate(topic.partitions):
                self._check_partition(f"{broker.name}: {topic.name}-{at}", (topic.topic_id, at), partition)

    def _check_partition(self, name: str, key: tuple[bytes, int], partition: Any) -> None:
        if not set(partition.isr) <= set(partition.replicas):
            raise Anomaly(f"{name} has in-sync replicas that it has not: {partition}")
        if set(partition.elr) & set(partition.isr) or not set(partition.elr) <= set(partition.replicas):
            raise Anomaly(f"{name} has eligible leaders that are in sync, or no replicas: {partition}")
        if partition.leader >= 0:
            epoch = (*key, partition.leader_epoch)
            if self._leaders.setdefault(epoch, partition.leader) != partition.leader:
                raise Anomaly(f"{name} has two leaders in epoch {partition.leader_epoch}")

    # Leaders of partitions

    def _check_led(self, broker: Broker, process: Process) -> None:
        table = broker.node._replicas.table  # type: ignore[union-attr]
        if table.lease_until is None or process.boot_clock() >= table.lease_until or table.stopping:
            return
        registered = self._newest.brokers.get(broker.node_id)
        if registered is not None and registered.fenced and registered.broker_epoch == table.broker_epoch:
            raise Anomaly(f"{broker.name} is fenced, others may lead what it leads, and its lease is not over")
        marks = self._high_watermarks
        for hosted in table.topics.values():
            for partition in hosted.partitions.values():
                mark = partition.high_watermark
                if mark > partition.log.end_offset:
                    raise Anomaly(f"{broker.name}: {partition.topic}-{partition.index}: high watermark after the end")
                known = marks.get(partition, 0)
                if mark < known:
                    raise Anomaly(f"{broker.name}: {partition.topic}-{partition.index}: {mark} after {known}")
                if mark:
                    marks[partition] = mark
                    self._check_replicated(broker, partition, mark)

    def _check_replicated(self, broker: Broker, partition: Any, mark: int) -> None:
        """What counts as committed is on every replica that leader and controller have in sync."""
        topic = self._newest.topics.get(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id or partition.is_over:
            return
        image, leader = topic.partitions[partition.index], broker.node_id
        if image.leader != leader or image.leader_epoch != partition.leader_epoch:
            return
        in_sync = partition.leadership.isr
        for node_id in image.isr:
            if node_id == leader or node_id not in in_sync:
                continue
            other = self._cluster.brokers.get(node_id)
            if other is None or not other.is_ready or not other.is_running:
                continue
            hosted = other.node._replicas.table.topics_by_id.get(partition.topic_id)  # type: ignore[union-attr]
            replica = None if hosted is None else hosted.replica(partition.index)
            if replica is None or replica.log.end_offset >= mark or replica.is_truncating or replica.log.is_offline:
                continue
            raise Anomaly(
                f"{broker.name}: {partition.topic}-{partition.index} is committed up to {mark},"
                f" and {other.name}, which is in sync, has it up to {replica.log.end_offset}"
            )
