"""A coordinator (of groups or of transactions) on this node: a shard host for each partition that it leads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar, Final, Generic, TypeVar

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.partitioner import partition_for
from tidemark.broker.coordination.shard_host import ShardHost
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode

MEMO_BYTES_MAX: Final = 16 << 20  # for ids whose shard is cached, which saves hashing them
MEMO_ENTRY_BYTES: Final = 200  # beside the id itself, about


H = TypeVar("H", bound=ShardHost)


class Coordinator(ABC, Generic[H]):
    TOPIC: ClassVar[str]
    COUNTERS: ClassVar[tuple[str, ...]] = ()  # what a shard counts while it is here, for the metrics

    def __init__(
        self,
        *,
        node_id: int,
        settings: DynamicConfig,
        replicas: ReplicaTable,
        create_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self.settings = settings
        self.image = Image()
        self._node_id = node_id
        self._replicas = replicas
        self._create_topic = create_topic
        self._shards: dict[int, H] = {}
        self._counted: Counter[str] = Counter()  # by shards that are elsewhere now
        self._memo: dict[str, H] = {}
        self._memo_bytes = 0
        self._closed = False

    @abstractmethod
    def _start_shard(self, partition: Partition) -> H:
        """Create the shard host of a partition and start loading its records."""

    # -- looking up --------------------------------------------------------

    def find(self, key: str) -> H | ErrorCode:
        """The shard that holds a group or a transactional id, or why not."""
        if self._replicas.lease_until is not None and not self._replicas.is_leased:
            return ErrorCode.NOT_COORDINATOR  # without a lease another broker may have taken over
        found = self._memo.get(key)
        return found if found is not None else self._find(key)

    def _find(self, key: str) -> H | ErrorCode:
        index = self.partition_of(key)
        host = None if index is None else self._shards.get(index)
        if host is None:
            return ErrorCode.NOT_COORDINATOR
        if host.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if host.holds(key):  # or clients could make us remember any number of ids that do not exist
            self._remember(key, host)
        return host

    def _remember(self, key: str, host: H) -> None:
        self._memo_bytes += MEMO_ENTRY_BYTES + 4 * len(key)
        if self._memo_bytes > MEMO_BYTES_MAX:
            self._forget_all()
        else:
            self._memo[key] = host

    def _forget_all(self) -> None:
        self._memo.clear()
        self._memo_bytes = 0

    def partition_of(self, key: str) -> int | None:
        """The partition of the topic that holds a key, or None if the topic does not exist."""
        topic = self.image.topics.get(self.TOPIC)
        return None if topic is None else partition_for(key, partitions=len(topic.partitions))

    def coordinator_of(self, key: str) -> int:
        """The broker that coordinates a key, -1 if there is none at the moment."""
        index = self.partition_of(key)
        return -1 if index is None else self.image.topics[self.TOPIC].partitions[index].leader

    async def leader_of(self, key: str) -> int:
        """As `coordinator_of`. The topic is created when first asked for."""
        if self.TOPIC not in self.image.topics:
            await self._create_topic(self.TOPIC)
        return self.coordinator_of(key)

    def __iter__(self) -> Iterator[H]:
        return iter(list(self._shards.values()))

    # -- following the metadata --------------------------------------------

    def follow(self, old: Image, new: Image) -> None:
        self.image = new
        if old.topics is not new.topics and not self._closed:
            self.host()

    def host(self) -> None:
        """Host a shard for every partition that this node leads, and drop the others."""
        topic = self.image.topics.get(self.TOPIC)
        hosted_topic = self._replicas.topics.get(self.TOPIC)
        led = {
            index: hosted_topic.partitions[index]
            for index, partition in enumerate(topic.partitions if topic else ())
            if partition.leader == self._node_id and hosted_topic and index in hosted_topic.partitions
        }
        for index in [index for index, each in self._shards.items() if led.get(index) is not each.partition]:
            self._forget_all()
            self._give_up(self._shards.pop(index))
        for index, partition in led.items():
            if index not in self._shards:
                self._shards[index] = self._start_shard(partition)

    def _give_up(self, host: H) -> None:
        for name in self.COUNTERS:
            self._counted[name] += getattr(host.shard, name)
        host.close()

    def count(self, name: str) -> int:
        """What all shards have counted on this node. Prometheus would take a sum that falls for a new beginning."""
        here: int = sum(getattr(host.shard, name) for host in self)
        return self._counted[name] + here

    def reconfigure(self, config: BrokerConfig, _image: Image) -> None:
        for host in self:
            host.shard.config = config

    def close(self) -> None:
        self._closed = True
        self._forget_all()
        for host in self:
            host.close()
        self._shards.clear()
