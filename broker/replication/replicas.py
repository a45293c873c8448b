"""Every replica this node hosts, kept in step with the metadata image: which it leads, and which it follows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.config import BrokerConfig, TopicConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image, PartitionImage, TopicImage
from tidemark.broker.metadata.internal import INTERNAL_TOPICS
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.leadership import Leadership
from tidemark.broker.replication.log_opening import Opening
from tidemark.broker.replication.logs import check_records, log_config
from tidemark.broker.replication.partition import InternalPartition, Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.throttle import Throttle, is_listed
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import InvalidBatch
from tidemark.storage import CorruptLog, Log, LogDirectory, LogOffline, StorageError, TopicIdMismatch

if TYPE_CHECKING:
    from tidemark.broker.peers import Peers
    from tidemark.broker.replication.followed import Followed
    from tidemark.broker.replication.replication import Replication
    from tidemark.protocol.messages.fetch import FetchRequest

log = logging.getLogger(__name__)

SYNC_THREADS: Final = 4  # concurrent fdatasyncs; more only queue up in the device
EXPIRED: Final = 0.0


class Replicas:
    def __init__(
        self, *, node_id: int, config: BrokerConfig, directories: Sequence[LogDirectory], now_ms: Callable[[], int]
    ) -> None:
        self.node_id = node_id
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}
        self.directories = directories
        self.now_ms = now_ms
        self.image = Image()
        self.stopping = False  # waits end with what there is
        self._closed = False
        # Until when, by `lease_clock`, nobody else can have become leader of what we lead; None: there is nobody else.
        self.lease_until: float | None = None
        self.peers: Peers | None = None
        self._replication: Replication | None = None
        self._opening: Opening | None = None
        self._config = config
        self._on_disk = {each.path: set(each.partitions()) for each in directories}
        self._executor: Executor = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")
        # Told of a topic of which something was opened when no change of the metadata says so.
        self.opened_later: Callable[[str], None] = lambda _topic: None
        self._warned_uncleaned: set[str] = set()
        self._unopened: dict[tuple[bytes, int], Exception] = {}
        self.leader_throttle = Throttle(lambda: self._config.leader_replication_throttled_rate)
        self.follower_throttle = Throttle(lambda: self._config.follower_replication_throttled_rate)
        self._damaged: dict[tuple[bytes, int], str] = {}  # led here until another does, and then to be rebuilt
        self._loading: dict[tuple[bytes, int], tuple[LogDirectory, tuple[str, int]]] = {}
        self._load_errors: dict[tuple[str, int], Exception] = {}  # what the thread ran into, where it is being opened

    # -- the others --------------------------------------------------------

    def start_replication(self, peers: Peers) -> None:
        """This node has others beside it: follow them, and be followed. Without a lease nothing is served."""
        from tidemark.broker.replication.replication import Replication

        self.lease_until = EXPIRED
        self.peers = peers
        self._replication = Replication(self, peers)
        for hosted in self.topics.values():
            for followed in hosted.followed.values():
                self._replication.follow(followed)

    async def stop_replication(self) -> None:
        if self._opening is not None:
            await self._opening.close()
        if self._replication is not None:
            await self._replication.stop()

    @property
    def config(self) -> BrokerConfig:
        return self._config

    @property
    def broker_epoch(self) -> int:
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.broker_epoch

    @property
    def is_leased(self) -> bool:
        return self.lease_until is None or lease_clock() < self.lease_until

    def _is_eligible(self, node_id: int, broker_epoch: int) -> bool:
        """KIP-903: not a broker that has been restarted since it fetched, nor one that the controller would refuse."""
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.broker_epoch)

    def serve_follower(self, request: FetchRequest) -> Any:
        if self._replication is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node has no followers.")
        return self._replication.sessions.fetch(request)

    def follower_fetched(self, partition: Partition, node_id: int, now: float) -> None:
        partition.reconsider_mark(now=now)
        partition.reconsider_low_mark()
        if self._replication is not None and node_id not in partition.leadership.isr:
            self._replication.consider_expansion(partition, node_id)

    def follower_gave_up(self, partition: Partition) -> None:
        if self._replication is not None:
            self._replication.look_again(partition)

    def doubt(self, partition: Partition, offset: int) -> None:
        """A follower cannot get past a place: perhaps what we have there is damaged, and another has it whole."""
        try:
            check_records(partition.log, offset)
        except (StorageError, InvalidBatch) as error:
            log.error("%s-%d: what is at offset %d is damaged: %s", partition.topic, partition.index, offset, error)
            if len(partition.leadership.isr) > 1:
                self._damaged[partition.topic_id, partition.index] = f"damaged at offset {offset}: {error}"
                self._step_aside(partition, error)

    def is_throttled(self, followed: Followed) -> bool:
        """Whether what is fetched of it counts against `follower.replication.throttled.rate`."""
        if not self.follower_throttle.is_set or (hosted := self.topics_by_id.get(followed.topic_id)) is None:
            return False
        listed = followed.config.follower_replication_throttled_replicas
        is_in_sync = self.node_id in hosted.image.partitions[followed.index].isr
        return not is_in_sync and is_listed(listed, index=followed.index, node_id=self.node_id)

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

    def __iter__(self) -> Iterator[Replica]:
        for hosted in list(self.topics.values()):
            yield from hosted.replicas()

    def led(self) -> Iterator[Partition]:
        for hosted in list(self.topics.values()):
            yield from list(hosted.partitions.values())

    def topic_config(self, image: Image, name: str) -> TopicConfig:
        return TopicConfig.resolve(self._config, image.config_of(TOPIC_RESOURCE, name))

    # -- following the metadata --------------------------------------------

    def follow(self, old: Image, new: Image) -> None:
        """Open what appeared, delete what went, lead and follow as told, adopt changed settings."""
        if self._closed:
            return
        self.image = new
        if old.topics is not new.topics:
            for topic_id, name in old.topic_names.items():
                if topic_id not in new.topic_names:
                    self._drop_topic(name)
            for name, topic in new.topics.items():
                if old.topics.get(name) is not topic:
                    self._host(new, topic)
        if old.configs is not new.configs:
            for (resource_type, name), values in {**old.configs, **new.configs}.items():
                if resource_type == TOPIC_RESOURCE and new.configs.get((resource_type, name)) is not old.configs.get(
                    (resource_type, name)
                ):
                    self._reconfigure(new, name, values)
        if self._replication is not None and old.brokers is not new.brokers:
            self._replication.brokers_changed()

    def reconfigure_all(self, config: BrokerConfig, image: Image) -> None:
        """The broker's own defaults changed: every topic that relies on them follows."""
        self._config = config
        for name in self.topics:
            self._reconfigure(image, name, {})

    def _host(self, image: Image, topic: TopicImage) -> None:
        hosted = self.topics.get(topic.name)
        before: tuple[PartitionImage, ...] = ()
        if hosted is None:
            hosted = HostedTopic(
                name=topic.name, topic_id=topic.topic_id, config=self.topic_config(image, topic.name), image=topic
            )
            self.topics[topic.name] = self.topics_by_id[topic.topic_id] = hosted
            self._warn_uncleaned(hosted)
        else:
            before, hosted.image = hosted.image.partitions, topic
        for index, partition in enumerate(topic.partitions):
            if index >= len(before) or before[index] is not partition:
                if self._opening is not None and hosted.replica(index) is None and self.node_id in partition.replicas:
                    is_new = self._holding((hosted.name, index)) is None
                    self._opening.add((hosted.topic_id, index), is_new=is_new)
                else:
                    self._assign(hosted, index, partition)

    # -- opening many ------------------------------------------------------

    def open_gradually(self) -> Opening:
        """From now on logs are opened without holding up the loop: on a cluster, others wait for this node's
        heartbeats."""
        self._opening = Opening(prepare=self._prepare, open_now=self._open_now, take=self._take_loaded)
        return self._opening

    def _open_now(self, key: tuple[bytes, int]) -> None:
        hosted = self.topics_by_id.get(key[0])
        if hosted is not None and key[1] < len(hosted.image.partitions):
            self._assign(hosted, key[1], hosted.image.partitions[key[1]])
            self.opened_later(hosted.name)

    def _prepare(self, key: tuple[bytes, int]) -> Callable[[], Log] | None:
        """How to load a log that is not open, by another thread."""
        hosted = self.topics_by_id.get(key[0])
        if hosted is None or key[1] >= len(hosted.image.partitions) or hosted.replica(key[1]) is not None:
            return None
        place = (hosted.name, key[1])
        if self.node_id not in hosted.image.partitions[key[1]].replicas:
            return None
        directory = self._directory_for(place)
        if place in directory.logs:
            return None
        self._loading[key] = directory, place
        config = log_config(hosted.config, self._config)
        return partial(directory.load_log, *place, config=config, topic_id=hosted.topic_id)

    def _take_loaded(self, key: tuple[bytes, int], loaded: Log | Exception) -> None:
        directory, place = self._loading.pop(key)
        if isinstance(loaded, Log):
            directory.take_in(*place, loaded)
        hosted = self.topics_by_id.get(key[0])
        is_wanted = (
            hosted is not None
            and key[1] < len(hosted.image.partitions)
            and self.node_id in hosted.image.partitions[key[1]].replicas
        )
        if is_wanted:
            self._load_errors = {} if isinstance(loaded, Log) else {place: loaded}
            self._open_now(key)
            self._load_errors = {}
        elif isinstance(loaded, Log):
            self._delete_log(*place)  # the topic went, or was given to others, in the meantime

    def _assign(self, hosted: HostedTopic, index: int, image: PartitionImage) -> None:
        """Take the role that the image gives us."""
        if self.node_id not in image.replicas:
            self._leave(hosted, index)
            return
        try:
            if image.leader == self.node_id:
                self._lead(hosted, index, image)
            else:
                self._follow(hosted, index, image)
            hosted.offline.pop(index, None)
        except (OSError, StorageError) as error:
            if hosted.offline.get(index) != str(error):
                log.error("%s-%d cannot be opened and is offline: %s", hosted.name, index, error)
            self._retire(hosted, index, error)
            hosted.offline[index] = str(error)
            self._unopened[hosted.topic_id, index] = error
            if image.leader == self.node_id:
                self._leave_to_another(hosted, index, image, error)

    def _leave_to_another(self, hosted: HostedTopic, index: int, image: PartitionImage, error: Exception) -> None:
        if self._replication is None or not self.is_leased:
            return
        from tidemark.broker.replication.isr_changes import Unopened

        leadership = self._leadership(image, start_offset=0)
        unopened = Unopened(topic=hosted.name, topic_id=hosted.topic_id, index=index, leadership=leadership)
        self._replication.step_aside(unopened, error)

    def _leadership(self, image: PartitionImage, *, start_offset: int) -> Leadership:
        return Leadership(
            node_id=self.node_id,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            start_offset=start_offset,
            now=time.monotonic(),
            is_eligible=self._is_eligible,
        )

    def _lead(self, hosted: HostedTopic, index: int, image: PartitionImage) -> None:
        led = hosted.partitions.get(index)
        if led is not None and led.leader_epoch == image.leader_epoch:
            led.settle(isr=image.isr, replicas=image.replicas, partition_epoch=image.partition_epoch)
            if self._replication is not None:
                self._replication.consider_others(led)
            return
        log_on_disk, mark = self._log_and_mark(hosted, index)
        log_on_disk.start_epoch(image.leader_epoch)
        leadership = self._leadership(image, start_offset=log_on_disk.end_offset)
        kind = InternalPartition if hosted.name in INTERNAL_TOPICS else Partition
        partition = kind(
            topic=hosted.name,
            topic_id=hosted.topic_id,
            index=index,
            leader_epoch=image.leader_epoch,
            log=log_on_disk,
            config=hosted.config,
            executor=self._executor,
            high_watermark=None if leadership.is_alone else mark,
            leadership=leadership,
            fails=self._step_aside,
        )
        self._retire(hosted, index, None)
        hosted.partitions[index] = partition
        partition.reconsider_mark()

    def _follow(self, hosted: HostedTopic, index: int, image: PartitionImage) -> None:
        followed = hosted.followed.get(index)
        if (damage := self._damaged.pop((hosted.topic_id, index), None)) is not None:
            self._log_and_mark(hosted, index)[0].fail(damage)
            raise LogOffline(damage)
        if followed is None:
            from tidemark.broker.replication.followed import Followed

            log_on_disk, mark = self._log_and_mark(hosted, index)
            followed = Followed(
                topic=hosted.name,
                topic_id=hosted.topic_id,
                index=index,
                leader=image.leader,
                leader_epoch=image.leader_epoch,
                log=log_on_disk,
                config=hosted.config,
                executor=self._executor,
                high_watermark=mark,
            )
            self._retire(hosted, index, None)
            hosted.followed[index] = followed
        elif (followed.leader, followed.leader_epoch) == (image.leader, image.leader_epoch):
            return
        followed.follow(leader=image.leader, leader_epoch=image.leader_epoch)
        if self._replication is not None:
            self._replication.follow(followed)

    def _log_and_mark(self, hosted: HostedTopic, index: int) -> tuple[Log, int]:
        """The log, open, and the high watermark as last known here."""
        replica = hosted.replica(index)
        if replica is not None:
            return replica.log, replica.high_watermark
        return self._find_or_create(hosted, index)

    def _retire(self, hosted: HostedTopic, index: int, error: Exception | None) -> None:
        """End the role that this node has had; the log stays."""
        led = hosted.partitions.pop(index, None)
        if led is not None:
            led.resign(error or Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leadership is over."))
        followed = hosted.followed.pop(index, None)
        if followed is not None:
            if self._replication is not None:
                self._replication.unfollow(followed)
            followed.wake_all()

    def _step_aside(self, partition: Partition, error: Exception) -> None:
        """The disk of a partition that we lead is in trouble."""
        if self._replication is not None:
            self._replication.step_aside(partition, error)

    def _leave(self, hosted: HostedTopic, index: int) -> None:
        """This node has no replica of it any more."""
        hosted.offline.pop(index, None)
        if hosted.replica(index) is not None:
            self._retire(hosted, index, None)
        if (hosted.topic_id, index) not in self._loading:
            self._delete_log(hosted.name, index)

    # -- logs --------------------------------------------------------------

    def _find_or_create(self, hosted: HostedTopic, index: int) -> tuple[Log, int]:
        config = log_config(hosted.config, self._config)
        key = (hosted.name, index)
        directory = self._directory_for(key)
        try:
            if key in self._load_errors:
                raise self._load_errors[key]
            log_on_disk = directory.open_log(*key, config=config, topic_id=hosted.topic_id)
            log_on_disk.check_online()
        except (CorruptLog, TopicIdMismatch, LogOffline) as error:
            if not self._may_discard(hosted.image.partitions[index], error):
                raise
            log.warning("%s-%d is given up and fetched anew from its leader: %s", *key, error)
            directory.discard(*key)
            log_on_disk = directory.open_log(*key, config=config, topic_id=hosted.topic_id)
        log_on_disk.config = config
        return log_on_disk, directory.high_watermarks.get(key, 0)

    def _holding(self, key: tuple[str, int]) -> LogDirectory | None:
        """The directory that has this partition, open or not."""
        holding = (each for each in self.directories if key in each.logs or key in self._on_disk[each.path])
        return next(holding, None)

    def _directory_for(self, key: tuple[str, int]) -> LogDirectory:
        found = self._holding(key)
        if found is None and len(self.directories) > 1:
            coming = [directory for directory, _ in self._loading.values()]
            found = min(self.directories, key=lambda each: len(each.logs) + coming.count(each))
        return found or self.directories[0]

    def _may_discard(self, image: PartitionImage, error: Exception) -> bool:
        """Whether nobody relies on what this node has: it leads nothing, is in nobody's in-sync set, and knows that for
        certain, which it does while it has a lease."""
        if self.lease_until is None or not self.is_leased:
            return False
        if isinstance(error, TopicIdMismatch):
            return True  # another topic's, of the same name, which is gone
        relied_on = {image.leader, *image.isr, *image.elr, *image.last_known_elr}
        return image.leader >= 0 and self.node_id not in relied_on

    def retry_offline(self) -> None:
        """Partitions that could not be opened: perhaps there is room again, or they may be rebuilt by now."""
        for key, error in list(self._unopened.items()):
            hosted = self.topics_by_id.get(key[0])
            if hosted is None or key[1] not in hosted.offline:
                del self._unopened[key]
                continue
            if self._opening is not None and key in self._opening:
                continue  # it is being tried already
            image = hosted.image.partitions[key[1]]
            lasting = isinstance(error, CorruptLog | TopicIdMismatch)  # to look again would find the same
            if self.is_leased and (not lasting or self._may_discard(image, error)):
                self._assign(hosted, key[1], image)
                self.opened_later(hosted.name)

    def failed(self, replica: Replica, error: Exception) -> None:
        """A replica's log is offline: it cannot be followed any further."""
        hosted = self.topics_by_id.get(replica.topic_id)
        if hosted is not None and hosted.replica(replica.index) is replica:
            self._retire(hosted, replica.index, error)
            hosted.offline[replica.index] = str(error)
            self._unopened[hosted.topic_id, replica.index] = error

    def _drop_topic(self, name: str) -> None:
        hosted = self.topics.pop(name, None)
        if hosted is None:
            return
        self.topics_by_id.pop(hosted.topic_id, None)
        for replica in hosted.replicas():
            self._retire(hosted, replica.index, LogOffline("the topic was deleted"))
        for index in range(len(hosted.image.partitions)):
            if (hosted.topic_id, index) not in self._loading:  # or it goes when it is loaded
                self._delete_log(name, index)

    def _delete_log(self, topic: str, index: int) -> None:
        """What there is of it here, open or not."""
        for directory in self.directories:
            on_disk = self._on_disk[directory.path]
            try:
                if (topic, index) in directory.logs or (topic, index) in on_disk:
                    directory.discard(topic, index)
            except OSError as error:
                log.error("deleting %s-%d failed, its files may stay behind: %s", topic, index, error)
            on_disk.discard((topic, index))

    def _reconfigure(self, image: Image, name: str, _values: Mapping[str, str]) -> None:
        hosted = self.topics.get(name)
        if hosted is None:
            return
        hosted.config = self.topic_config(image, name)
        self._warn_uncleaned(hosted)
        for replica in hosted.replicas():
            replica.configure(hosted.config)
            replica.log.config = log_config(hosted.config, self._config)

    def _warn_uncleaned(self, hosted: HostedTopic) -> None:
        if "compact" in hosted.config.cleanup_policy and hosted.name not in self._warned_uncleaned:
            self._warned_uncleaned.add(hosted.name)
            log.warning("%s has cleanup.policy=compact, which is not cleaned yet: it keeps every record", hosted.name)

    # -- housekeeping ------------------------------------------------------

    def apply_retention(self, replicas: Iterable[Replica]) -> None:
        now_ms = self.now_ms()
        for replica in replicas:
            with _reported("retention", replica):
                replica.log.apply_retention(now_ms, high_watermark=replica.high_watermark)

    def expire_producers(self, replicas: Iterable[Replica]) -> None:
        now_ms = self.now_ms()
        for replica in replicas:
            with _reported("expiry of producers", replica):
                replica.log.expire_producers(now_ms)

    def flush_due(self) -> None:
        """Sync what has waited long enough."""
        now_ms = self.now_ms()
        for replica in self:
            replica.flush_if_due(now_ms)

    def remove_deleted(self) -> None:
        """Unlink what is due, off the event loop: for a large file that takes long."""
        now_ms = self.now_ms()
        for directory in self.directories:
            if (work := directory.take_deleted(now_ms)) is not None:
                self._executor.submit(work).add_done_callback(partial(_report_removal, directory.path))

    def checkpoint(self) -> None:
        for directory in self.directories:
            try:
                directory.write_checkpoints(self._high_watermarks(directory))
            except OSError as error:
                log.error("writing the checkpoints of %s failed: %s", directory.path, error)

    def _high_watermarks(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        return {
            (each.topic, each.index): each.high_watermark for each in self if (each.topic, each.index) in directory.logs
        }

    def end_waits(self) -> None:
        """At shutdown: long polls are answered with what there is."""
        self.stopping = True
        if self._replication is not None:
            self._replication.sessions.end_waits()
        for replica in self:
            replica.wake_all()

    def close(self, *, broker_epoch: int = -1) -> None:
        """For any thread: with many logs it takes a while. What the metadata says meanwhile is heard no more.
        `broker_epoch`: of the life that ends; each directory that is closed well keeps it for the next."""
        self._closed = True
        self._executor.shutdown(wait=True)
        is_complete = self._opening is None or self._opening.is_complete
        for directory in self.directories:
            try:
                directory.close(
                    high_watermarks=self._high_watermarks(directory), is_complete=is_complete, broker_epoch=broker_epoch
                )
            except OSError as error:
                log.error("%s was not closed cleanly: %s", directory.path, error)


@contextmanager
def _reported(work: str, replica: Replica) -> Iterator[None]:
    """One partition's trouble does not keep the others from their turn."""
    try:
        yield
    except (OSError, StorageError) as error:
        log.error("%s of %s-%d failed: %s", work, replica.topic, replica.index, error)


def _report_removal(directory: str, done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        log.error("removing deleted files from %s failed: %s", directory, error)
