"""The cluster as this node knows it: brokers, the controller, the quorum, and what changes in the metadata."""

from __future__ import annotations

from typing import Final

from tidemark.broker.metadata.image import Image, PartitionImage
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metrics.exposition import Collected
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.environment import monotonic

_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_RAFT: Final = "kafka_server_raftmetrics"
STEP: Final = 256


def _controller(name: str, help: str) -> Metric:
    return Metric(name=f"{_CONTROLLER}_{name}", kind=Kind.GAUGE, help=help)


def _raft(name: str, help: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(name=f"{_RAFT}_{name}", kind=kind, help=help)


ACTIVE: Final = _controller("activecontrollercount", "1 on the node that is the controller, 0 elsewhere.")
BROKERS: Final = _controller("activebrokercount", "Brokers that are registered and not fenced.")
FENCED: Final = _controller("fencedbrokercount", "Brokers that are registered and fenced.")
TOPICS: Final = _controller("globaltopiccount", "Topics of the cluster.")
PARTITIONS: Final = _controller("globalpartitioncount", "Partitions of the cluster.")
OFFLINE: Final = _controller("offlinepartitionscount", "Partitions of the cluster without a leader.")
IMBALANCE: Final = _controller(
    "preferredreplicaimbalancecount", "Partitions of the cluster that their first replica does not lead."
)
ELECTIONS: Final = Metric(
    name="kafka_controller_controllerstats_leaderelections",
    kind=Kind.COUNTER,
    help="Changes of a partition's leader that this node saw in the metadata.",
)
SHRINKS: Final = Metric(
    name="kafka_server_replicamanager_isrshrinks",
    kind=Kind.COUNTER,
    help="How often a replica left the in-sync set of a partition that this node leads.",
)
EXPANDS: Final = Metric(
    name="kafka_server_replicamanager_isrexpands",
    kind=Kind.COUNTER,
    help="How often a replica joined the in-sync set of a partition that this node leads.",
)
TERM: Final = _raft("currentepoch", "The term of the metadata quorum.")
LEADER: Final = _raft("currentleader", "The node that leads the quorum, -1 if none is known.")
COMMITTED: Final = _raft("highwatermark", "The metadata log is committed up to this index.")
LAST: Final = _raft("logendoffset", "The last index of the metadata log on this node.")
UNCOMMITTED: Final = _raft("commitlag", "Entries of the metadata log on this node that are not committed.")
UNAPPLIED: Final = _raft("applylag", "Entries that are committed and not applied here yet.")
TERMS: Final = _raft("termchanges", "How often the quorum's term changed while this node ran.", Kind.COUNTER)
SNAPSHOT: Final = _raft("snapshotlag", "Entries of the metadata log since the last snapshot.")
SNAPSHOT_AGE: Final = _raft(
    "snapshotage_seconds", "Since this node last had a new snapshot of the metadata, or since its start."
)


class ClusterMetrics:
    METRICS: Final = (
        ACTIVE,
        BROKERS,
        FENCED,
        TOPICS,
        PARTITIONS,
        OFFLINE,
        IMBALANCE,
        ELECTIONS,
        SHRINKS,
        EXPANDS,
        TERM,
        LEADER,
        COMMITTED,
        LAST,
        UNCOMMITTED,
        UNAPPLIED,
        TERMS,
        SNAPSHOT,
        SNAPSHOT_AGE,
    )

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._elections = self._shrinks = self._expands = self._terms = 0
        self._term = store.driver.node.term
        self._snapshot_index, self._snapshot_at = -1, monotonic()
        store.watch(self.follow)

    def follow(self, old: Image, new: Image) -> None:
        """Count what is different. Every mapping of an image is replaced, never changed: what is the same object has
        not changed."""
        self._note_term()
        if old.topics is new.topics:
            return
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is topic or before is None or before.partitions is topic.partitions:
                continue
            for was, now in zip(before.partitions, topic.partitions, strict=False):
                if was is not now:
                    self._compare(was, now)

    def _compare(self, was: PartitionImage, now: PartitionImage) -> None:
        self._elections += was.leader != now.leader and now.leader >= 0
        if now.leader == was.leader == self._store.node_id:
            self._shrinks += not set(was.isr) <= set(now.isr)
            self._expands += not set(now.isr) <= set(was.isr)

    def _note_term(self) -> None:
        node = self._store.driver.node
        if node.term != self._term:
            self._term = node.term
            self._terms += 1
        index = 0 if node.snapshot is None else node.snapshot.index
        if index != self._snapshot_index:
            self._snapshot_index, self._snapshot_at = index, monotonic()

    def collect(self) -> Collected:
        self._note_term()
        image, node = self._store.image, self._store.driver.node
        partitions = offline = imbalance = 0
        for topic in image.topics.values():
            for partition in topic.partitions:
                partitions += 1
                offline += partition.leader < 0
                imbalance += partition.leader >= 0 and partition.leader != partition.replicas[0]
                if not partitions % STEP:
                    yield
        fenced = sum(broker.fenced for broker in image.brokers.values())
        values: dict[Metric, float] = {
            ACTIVE: int(self._store.is_controller),
            BROKERS: len(image.brokers) - fenced,
            FENCED: fenced,
            TOPICS: len(image.topics),
            PARTITIONS: partitions,
            OFFLINE: offline,
            IMBALANCE: imbalance,
            ELECTIONS: self._elections,
            SHRINKS: self._shrinks,
            EXPANDS: self._expands,
            TERM: node.term,
            LEADER: -1 if node.leader_id is None else node.leader_id,
            COMMITTED: node.commit_index,
            LAST: node.log.last_index,
            UNCOMMITTED: node.log.last_index - node.commit_index,
            UNAPPLIED: node.commit_index - self._store.applied_index,
            TERMS: self._terms,
            SNAPSHOT: node.log.last_index - self._snapshot_index,
            SNAPSHOT_AGE: monotonic() - self._snapshot_at,
        }
        return [(metric, [("", value)]) for metric, value in values.items()]
