"""Every partition this node hosts, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.config import BrokerConfig, TopicConfig
from broker.errors import Refused
from broker.metadata.image import TOPIC_RESOURCE, Image, TopicImage
from broker.metadata.internal import INTERNAL_TOPICS
from broker.replication.partition import InternalPartition, Partition
from protocol.errors import ErrorCode
from storage import Log, LogConfig, LogDirectory, LogOffline, StorageError

log = logging.getLogger(__name__)

SYNC_THREADS: Final = 4  # concurrent fdatasyncs; more only queue up in the device


@dataclass(slots=True, kw_only=True)
class HostedTopic:
    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: dict[int, Partition] = field(default_factory=dict)
    offline: dict[int, str] = field(default_factory=dict)  # partitions whose log could not be opened, and why


class Replicas:
    def __init__(
        self, *, node_id: int, config: BrokerConfig, directories: Sequence[LogDirectory], now_ms: Callable[[], int]
    ) -> None:
        self.node_id = node_id
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}
        self.directories = directories
        self.now_ms = now_ms
        self.stopping = False  # waits end with what there is
        self._config = config
        self._on_disk = {each.path: set(each.partitions()) for each in directories}
        self._executor: Executor = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")
        self._warned_uncleaned: set[str] = set()

    # -- looking up --------------------------------------------------------

    def leader_of(self, topic: str, index: int) -> Partition:
        """The partition, which this node leads, or the reason why not."""
        hosted = self.topics.get(topic)
        partition = None if hosted is None else hosted.partitions.get(index)
        if partition is not None:
            return partition
        if hosted is not None and index in hosted.offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, hosted.offline[index])
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{index} here.")

    def __iter__(self) -> Iterator[Partition]:
        for hosted in list(self.topics.values()):
            yield from list(hosted.partitions.values())

    def topic_config(self, image: Image, name: str) -> TopicConfig:
        return TopicConfig.resolve(self._config, image.config_of(TOPIC_RESOURCE, name))

    # -- following the metadata --------------------------------------------

    def follow(self, old: Image, new: Image) -> None:
        """Open what appeared, delete what went, adopt changed settings."""
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

    def reconfigure_all(self, config: BrokerConfig, image: Image) -> None:
        """The broker's own defaults changed: every topic that relies on them follows."""
        self._config = config
        for name in self.topics:
            self._reconfigure(image, name, {})

    def _host(self, image: Image, topic: TopicImage) -> None:
        hosted = self.topics.get(topic.name)
        if hosted is None:
            hosted = HostedTopic(name=topic.name, topic_id=topic.topic_id, config=self.topic_config(image, topic.name))
            self.topics[topic.name] = self.topics_by_id[topic.topic_id] = hosted
            self._warn_uncleaned(hosted)
        for index, partition in enumerate(topic.partitions):
            if self.node_id in partition.replicas and index not in hosted.partitions:
                self._open(hosted, index, leader_epoch=partition.leader_epoch)

    def _open(self, hosted: HostedTopic, index: int, *, leader_epoch: int) -> None:
        try:
            log_on_disk = self._find_or_create(hosted, index)
            log_on_disk.start_epoch(leader_epoch)
        except (OSError, StorageError) as error:
            log.error("%s-%d cannot be opened and is offline: %s", hosted.name, index, error)
            hosted.offline[index] = str(error)
            return
        hosted.offline.pop(index, None)
        kind = InternalPartition if hosted.name in INTERNAL_TOPICS else Partition
        hosted.partitions[index] = kind(
            topic=hosted.name,
            topic_id=hosted.topic_id,
            index=index,
            leader_epoch=leader_epoch,
            log=log_on_disk,
            config=hosted.config,
            executor=self._executor,
        )

    def _find_or_create(self, hosted: HostedTopic, index: int) -> Log:
        config = log_config(hosted.config, self._config)
        key = (hosted.name, index)
        holding = [each for each in self.directories if key in each.logs or key in self._on_disk[each.path]]
        directory = holding[0] if holding else min(self.directories, key=lambda each: len(each.logs))
        log_on_disk = directory.open_log(*key, config=config, topic_id=hosted.topic_id)
        log_on_disk.config = config
        return log_on_disk

    def _drop_topic(self, name: str) -> None:
        hosted = self.topics.pop(name, None)
        if hosted is None:
            return
        self.topics_by_id.pop(hosted.topic_id, None)
        for partition in hosted.partitions.values():
            partition.close_waiting(LogOffline("the topic was deleted"))
            partition.wake_all()
            self._delete_log(name, partition.index)

    def _delete_log(self, topic: str, index: int) -> None:
        for directory in self.directories:
            self._on_disk[directory.path].discard((topic, index))
            if (topic, index) in directory.logs:
                try:
                    directory.delete(topic, index)
                except OSError as error:
                    log.error("deleting %s-%d failed, its files may stay behind: %s", topic, index, error)

    def _reconfigure(self, image: Image, name: str, _values: Mapping[str, str]) -> None:
        hosted = self.topics.get(name)
        if hosted is None:
            return
        hosted.config = self.topic_config(image, name)
        self._warn_uncleaned(hosted)
        for partition in hosted.partitions.values():
            partition.configure(hosted.config)
            partition.log.config = log_config(hosted.config, self._config)

    def _warn_uncleaned(self, hosted: HostedTopic) -> None:
        if "compact" in hosted.config.cleanup_policy and hosted.name not in self._warned_uncleaned:
            self._warned_uncleaned.add(hosted.name)
            log.warning("%s has cleanup.policy=compact, which is not cleaned yet: it keeps every record", hosted.name)

    # -- housekeeping ------------------------------------------------------

    def apply_retention(self, partitions: Iterable[Partition]) -> None:
        now_ms = self.now_ms()
        for partition in partitions:
            with _reported("retention", partition):
                partition.log.apply_retention(now_ms, high_watermark=partition.high_watermark)

    def expire_producers(self, partitions: Iterable[Partition]) -> None:
        now_ms = self.now_ms()
        for partition in partitions:
            with _reported("expiry of producers", partition):
                partition.log.expire_producers(now_ms)

    def flush_due(self) -> None:
        """Sync what has waited long enough."""
        now_ms = self.now_ms()
        for partition in self:
            partition.flush_if_due(now_ms)

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
        for partition in self:
            partition.wake_all()

    def close(self) -> None:
        self._executor.shutdown(wait=True)
        for directory in self.directories:
            directory.close(high_watermarks=self._high_watermarks(directory))


@contextmanager
def _reported(work: str, partition: Partition) -> Iterator[None]:
    """One partition's trouble does not keep the others from their turn."""
    try:
        yield
    except (OSError, StorageError) as error:
        log.error("%s of %s-%d failed: %s", work, partition.topic, partition.index, error)


def _report_removal(directory: str, done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        log.error("removing deleted files from %s failed: %s", directory, error)


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=topic.internal_segment_bytes or topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        compact="compact" in topic.cleanup_policy,
        delete="delete" in topic.cleanup_policy,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )
