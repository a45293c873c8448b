"""The table of the replicas on this node: what produce, fetch and the coordinators look up at every request.

`role_assignment` fills it; here is what a look-up needs, and whether this node may serve at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidemark.broker.config import BrokerConfig, TopicConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image
from tidemark.broker.replication.append_queues import AppendQueues
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.throttle import Throttle
from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.broker.replication.unwritten_batches import UnwrittenOnNode
from tidemark.broker.replication.writers import Writers
from tidemark.environment import new_executor
from tidemark.protocol.errors import ErrorCode
from tidemark.storage import Log, LogDirectory

if TYPE_CHECKING:
    from tidemark.broker.peers import Peers

EXPIRED: Final = 0.0
READ_THREADS: Final = 4  # apart from syncs and from raft's journal, which must not wait for readers


class ReplicaTable:
    def __init__(
        self, *, node_id: int, config: BrokerConfig, directories: list[LogDirectory], now_ms: Callable[[], int]
    ) -> None:
        self.node_id = node_id
        self.directories = directories
        self.offline_directories: dict[str, str] = {}  # path: why it is not used
        self.opening_progress: Callable[[], tuple[int, int]] = lambda: (0, 0)  # logs that are open, of how many
        self.config = config
        self.now_ms = now_ms
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}
        self.past_traffic = TopicTraffic()  # of topics that are gone: what is told of all together never falls
        self.image = Image()
        # Until when, by `lease_clock`, no other broker can have become leader of what this node leads. None: there is
        # no other broker.
        self.lease_until: float | None = None
        self.peers: Peers | None = None
        self.append_queues = AppendQueues()
        self.unwritten = UnwrittenOnNode()
        self._writers: dict[str, Writers] = {}  # by log directory
        self.stopping = False  # long polls end with what there is
        self.readers = new_executor(READ_THREADS, name="read")  # of what is not in memory
        window = self._replication_quota_seconds
        self.leader_throttle = Throttle(lambda: self.config.leader_replication_throttled_rate, window)
        self.follower_throttle = Throttle(lambda: self.config.follower_replication_throttled_rate, window)

    def _replication_quota_seconds(self) -> float:
        return self.config.replication_quota_window_num * self.config.replication_quota_window_size_seconds

    @property
    def is_leased(self) -> bool:
        return self.lease_until is None or lease_clock() < self.lease_until

    @property
    def broker_epoch(self) -> int:
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.broker_epoch

    def directory_of(self, replica: Replica) -> LogDirectory | None:
        """The log directory that a replica is in, if it works."""
        path = os.path.dirname(replica.log.directory)
        return next((each for each in self.directories if each.path == path), None)

    def writers_of(self, log: Log) -> Writers:
        """Of the log directory that it is in."""
        path = os.path.dirname(log.directory)
        if path not in self._writers:
            self._writers[path] = Writers(path)
        return self._writers[path]

    def stop_appending(self) -> None:
        """Nothing is appended from here on, but what is being written."""
        self.append_queues.stop()
        for writers in self._writers.values():
            writers.stop()

    def lag_seconds_max(self) -> float:
        return self.config.replica_lag_time_max_ms / 1000

    def is_eligible(self, node_id: int, broker_epoch: int) -> bool:
        """KIP-903: not a broker that has been restarted since it fetched, nor one that the controller would refuse."""
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.broker_epoch)

    # -- looking up --------------------------------------------------------

    def leader_of(self, topic: str, index: int) -> Partition:
        """The partition, which this node leads, or the reason why not."""
        hosted = self.topics.get(topic)
        partition = None if hosted is None else hosted.partitions.get(index)
        if partition is not None and self.is_leased:
            return partition
        if hosted is not None and index in hosted.offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, hosted.offline[index])
        if partition is not None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is cut off: another may lead by now.")
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if hosted is None else hosted.why_not_led(index)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(code, f"There is no partition {topic}-{index} here.")
        raise Refused(code, f"{topic}-{index} is led by another broker.")

    def replica_of(self, topic: str, index: int) -> Replica:
        """The replica on this node, leader or follower, or the reason why there is none."""
        hosted = self.topics.get(topic)
        if hosted is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index} here.")
        if index in hosted.offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, hosted.offline[index])
        replica = hosted.replica(index)
        if replica is None:
            raise Refused(hosted.why_not_led(index), f"This broker has no replica of {topic}-{index}.")
        return replica

    def holder_of(self, topic_id: bytes, index: int, log: Log) -> Replica | None:
        """The replica that has this log by now, as leader or follower. Work that takes long asks again: a replica is
        another object after a change of roles."""
        hosted = self.topics_by_id.get(topic_id)
        found = None if hosted is None else hosted.replica(index)
        return found if found is not None and found.log is log else None

    def __iter__(self) -> Iterator[Replica]:
        for hosted in list(self.topics.values()):
            yield from hosted.replicas()

    def led(self) -> Iterator[Partition]:
        for hosted in list(self.topics.values()):
            yield from list(hosted.partitions.values())

    def topic_config(self, image: Image, name: str) -> TopicConfig:
        return TopicConfig.resolve(self.config, image.config_of(TOPIC_RESOURCE, name))
