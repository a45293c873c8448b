"""Consumer groups that this node coordinates: members, committed offsets, and how far behind they are.

A group's lag is told by its coordinator, from the replica of the partition that is on the same node. Of a partition
without one the committed offset is told, and Prometheus can take it from the leader's end offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metrics.exposition import Collected, Labels, Sample, labels
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.records import BatchHeader, InvalidBatch, read_header
from tidemark.storage import ColdRead, StorageError

if TYPE_CHECKING:  # most brokers that start never see a group: its code is loaded with the first
    from tidemark.broker.groups.coordinator import GroupCoordinator
    from tidemark.broker.groups.shard import GroupShard

_PREFIX: Final = "kafka_consumergroup"
_BY_PARTITION: Final = ("consumergroup", "topic", "partition")
HEADER_BYTES: Final = 61
STEP: Final = 16  # partitions between two looks at the clock: each may read a header


def _group(name: str, help: str, *, by: tuple[str, ...]) -> Metric:
    return Metric(name=f"{_PREFIX}_{name}", kind=Kind.GAUGE, labels=by, help=help)


OFFSET: Final = _group("current_offset", "The offset that a group has committed.", by=_BY_PARTITION)
LAG: Final = _group("lag", "Records between a group's committed offset and the high watermark.", by=_BY_PARTITION)
LAG_SECONDS: Final = _group(
    "lag_seconds",
    "How long ago the next record that a group has to read was written, by its batch's timestamp; 0 without a lag.",
    by=_BY_PARTITION,
)
MEMBERS: Final = _group("members", "Members of a group.", by=("consumergroup",))
GENERATION: Final = _group(
    "generation",
    "The generation (of a group by the classic protocol) or epoch of a group: it counts rebalances.",
    by=("consumergroup",),
)
GROUPS: Final = Metric(
    name="kafka_coordinator_group_groupmetadatamanager_numgroups",
    kind=Kind.GAUGE,
    labels=("state",),
    help="Groups that this node coordinates, by state.",
)


def _rebalances(name: str, help: str) -> Metric:
    return Metric(name=f"kafka_server_group_coordinator_metrics_{name}", kind=Kind.COUNTER, help=help)


CLASSIC_REBALANCES: Final = _rebalances(
    "group_completed_rebalance_count",
    "Rebalances of groups by the classic protocol that this node coordinates: their members were all asked to join.",
)
CONSUMER_REBALANCES: Final = _rebalances(
    "consumer_group_rebalance_count",
    "Rebalances of groups by the consumer protocol that this node coordinates: a new epoch.",
)


class GroupMetrics:
    METRICS: Final = (
        OFFSET,
        LAG,
        LAG_SECONDS,
        MEMBERS,
        GENERATION,
        GROUPS,
        CLASSIC_REBALANCES,
        CONSUMER_REBALANCES,
    )

    def __init__(
        self, coordinator: Callable[[], GroupCoordinator | None], replicas: ReplicaTable, *, detail: Callable[[], str]
    ) -> None:
        """`coordinator`: None while this node has had nothing to do with groups."""
        self._coordinator = coordinator
        self._replicas = replicas
        self._detail = detail
        self._loading: set[Replica] = set()

    def collect(self) -> Collected:
        coordinator = self._coordinator()
        found: dict[Metric, list[Sample]] = {metric: [] for metric in self.METRICS}
        states: dict[str, int] = {}
        for host in () if coordinator is None else coordinator:
            if not host.is_loading:
                yield from self._look_at(host.shard, found, states)
        for metric, name in ((CLASSIC_REBALANCES, "classic_rebalances"), (CONSUMER_REBALANCES, "consumer_rebalances")):
            found[metric] = [("", 0 if coordinator is None else coordinator.count(name))]
        found[GROUPS] = [(labels(state=state), count) for state, count in sorted(states.items())]
        return list(found.items())

    def _look_at(self, shard: GroupShard, found: dict[Metric, list[Sample]], states: dict[str, int]) -> Job[None]:
        for group_id, group in list(shard.groups.items()):
            states[group.state_name] = states.get(group.state_name, 0) + 1
            name = labels(consumergroup=group_id)
            members, generation = _size_of(group)
            found[MEMBERS].append((name, members))
            found[GENERATION].append((name, generation))
            yield
        for group_id in list(shard.offsets.group_ids()):
            yield from self._look_at_offsets(group_id, shard.offsets.of_group(group_id), found)

    def _look_at_offsets(
        self, group_id: str, topics: Mapping[str, Mapping[int, Any]], found: dict[Metric, list[Sample]]
    ) -> Job[None]:
        group = labels(consumergroup=group_id)
        now_ms, detail = self._replicas.now_ms(), self._detail()
        sums: dict[Labels, list[float]] = {}
        for number, (topic, index, offset) in enumerate(_offsets(topics)):
            replica = self._replica(topic, index)
            lag, seconds = (-1, 0.0) if replica is None else self._lag(replica, offset, now_ms)
            if detail == "partition":
                name = f'{group},topic="{topic}",partition="{index}"'
                found[OFFSET].append((name, offset))
                if replica is not None:
                    found[LAG].append((name, lag))
                    found[LAG_SECONDS].append((name, seconds))
            elif replica is not None:
                name = f'{group},topic="{topic}"' if detail == "topic" else group
                records, longest = sums.get(name, (0, 0.0))
                sums[name] = [records + lag, max(longest, seconds)]
            if not number % STEP:
                yield
        found[LAG] += [(name, int(lag)) for name, (lag, _) in sums.items()]
        found[LAG_SECONDS] += [(name, seconds) for name, (_, seconds) in sums.items()]

    def _replica(self, topic: str, index: int) -> Replica | None:
        hosted = self._replicas.topics.get(topic)
        return None if hosted is None else hosted.replica(index)

    def _lag(self, replica: Replica, offset: int, now_ms: int) -> tuple[int, float]:
        lag = max(replica.high_watermark - max(offset, replica.log.start_offset), 0)
        if not lag:
            return 0, 0.0
        header = self._header_at(replica, max(offset, replica.log.start_offset))
        return lag, 0.0 if header is None else max(now_ms - header.base_timestamp, 0) / 1000

    def _header_at(self, replica: Replica, offset: int) -> BatchHeader | None:
        """Of the batch at an offset. None if that is not in memory: a scrape waits for no disk."""
        if replica.is_truncating:
            return None
        try:
            slices = replica.read(offset=offset, limit_bytes=1, at_least_one=True, wait=False)
            if not slices:
                return None
            head = memoryview(bytearray(HEADER_BYTES))
            got = slices[0].file.read_cached_into(head, slices[0].position)
            return read_header(head) if got == HEADER_BYTES else None
        except ColdRead as cold:
            if offset >= replica.log.segments.active.base_offset:
                self._load(replica, cold)
            return None
        except (StorageError, InvalidBatch, OSError):
            return None

    def _load(self, replica: Replica, cold: ColdRead) -> None:
        """For the next scrape: after a start nobody may have looked up anything in the segment that is written to, if
        the group is gone whose lag is told. What is loaded of that stays in memory."""
        if replica in self._loading:
            return
        self._loading.add(replica)

        def loaded(_done: asyncio.Future[None]) -> None:
            self._loading.discard(replica)
            if not replica.is_truncating:
                cold.finish()

        asyncio.get_running_loop().run_in_executor(self._replicas.readers, cold.load).add_done_callback(loaded)


def _offsets(topics: Mapping[str, Mapping[int, Any]]) -> Iterator[tuple[str, int, int]]:
    for topic, partitions in list(topics.items()):
        for index, value in list(partitions.items()):
            yield topic, index, value.offset


def _size_of(group: Any) -> tuple[int, int]:
    """Members and generation: of a classic group, or of a consumer group's state."""
    if hasattr(group, "members"):
        return len(group.members), group.generation
    return len(group.state.members), group.state.epoch
