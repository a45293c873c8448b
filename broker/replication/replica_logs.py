"""The logs under the replicas: in which directory each one is, how it is opened, made and deleted, and its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tidemark.broker.config import BrokerConfig, TopicConfig
from tidemark.broker.metadata import directories
from tidemark.broker.metadata.image import UNASSIGNED, PartitionImage
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.records import check_batch, iter_batches
from tidemark.storage import (
    CorruptLog,
    DirectoryOffline,
    LeftBehind,
    Log,
    LogConfig,
    LogDirectory,
    LogOffline,
    TopicIdMismatch,
    is_disk_failure,
)

log = logging.getLogger(__name__)

CHECKED_BYTES_MAX: Final = 1 << 20
PREFERRED_MAX: Final = 10_000

Place = tuple[str, int]  # topic name, partition
Key = tuple[bytes, int]  # topic id, partition


class ReplicaLogs:
    def __init__(self, table: ReplicaTable) -> None:
        self._table = table
        self._directories = table.directories
        self._on_disk = {each.path: set(each.partitions()) for each in table.directories}
        self._loading: dict[Key, tuple[LogDirectory, Place]] = {}
        self._preferred: dict[Place, LogDirectory] = {}  # where logs that do not exist yet are to be made
        self._remove_old_copies()
        self._left_behind = dict(self._find_left_behind())
        self.before_opening: Callable[[Place], None] = lambda _place: None

    def config_of(self, hosted: HostedTopic) -> LogConfig:
        return log_config(hosted.config, self._table.config)

    def exists(self, place: Place) -> bool:
        return self._holding(place) is not None

    # -- opening -----------------------------------------------------------

    def find_or_create(self, hosted: HostedTopic, index: int, load_error: Exception | None = None) -> tuple[Log, int]:
        """The log, open, and the high watermark as last known here. `load_error` is what loading it ran into."""
        place = (hosted.name, index)
        self.before_opening(place)
        config = self.config_of(hosted)
        directory = self._directory_for(place, hosted.image.partitions[index])
        try:
            if load_error is not None:
                raise load_error
            opened = directory.open_log(*place, config=config, topic_id=hosted.topic_id)
            opened.check_online()
            self._check_epoch(opened, hosted.image.partitions[index])
        except (CorruptLog, TopicIdMismatch, LogOffline) as error:
            if is_disk_failure(error) or not self.may_discard(hosted.image.partitions[index], error):
                raise
            log.warning("%s-%d is given up and fetched anew from its leader: %s", *place, error)
            directory.discard(*place)
            opened = directory.open_log(*place, config=config, topic_id=hosted.topic_id)
        opened.config = config
        return opened, directory.high_watermarks.get(place, 0)

    def begin_loading(self, hosted: HostedTopic, index: int) -> Callable[[], Log] | None:
        """What another thread is to call to load a log that is not open; None if it is open."""
        place = (hosted.name, index)
        self.before_opening(place)
        try:
            directory = self._directory_for(place, hosted.image.partitions[index])
        except (DirectoryOffline, LeftBehind):
            return None  # nothing to load; opening it will say why
        if place in directory.logs:
            return None
        self._loading[hosted.topic_id, index] = directory, place
        return partial(directory.load_log, *place, config=self.config_of(hosted), topic_id=hosted.topic_id)

    def finish_loading(self, key: Key, loaded: Log | Exception) -> Place:
        directory, place = self._loading.pop(key)
        if isinstance(loaded, Log):
            directory.add_log(*place, loaded)
        return place

    def is_loading(self, key: Key) -> bool:
        return key in self._loading

    def may_discard(self, image: PartitionImage, error: Exception) -> bool:
        """Whether no broker relies on what this node has: it leads nothing, is in no in-sync set, and knows that for
        certain, which it does while it has a lease."""
        table = self._table
        if isinstance(error, TopicIdMismatch) and table.is_leased:
            return True  # another topic's, of the same name, which is gone
        if table.lease_until is None or not table.is_leased:
            return False
        return image.leader >= 0 and not self._is_relied_on(image)

    def _is_relied_on(self, image: PartitionImage) -> bool:
        return self._table.node_id in {image.leader, *image.isr, *image.elr, *image.last_known_elr}

    def _check_epoch(self, opened: Log, image: PartitionImage) -> None:
        """No checksum covers a batch's leader epoch. A log with an epoch that has not begun yet agrees with no leader:
        each would answer that it does not know it, and nothing would ever be fetched."""
        if opened.latest_epoch > image.leader_epoch and image.leader >= 0 and not self._is_relied_on(image):
            reason = f"it has records of leader epoch {opened.latest_epoch}, and this is epoch {image.leader_epoch}"
            raise CorruptLog(path=opened.directory, position=0, reason=reason)

    # -- directories -------------------------------------------------------

    def _remove_old_copies(self) -> None:
        """A kill in the last moment of a move leaves a log in two directories: the marked one is the newer."""
        for directory in self._directories:
            for place in sorted(self._on_disk[directory.path]):
                others = [each for each in self._directories if each is not directory]
                old = [each for each in others if place in self._on_disk[each.path]]
                if not directory.has_mark(place) or any(each.has_mark(place) for each in old):
                    continue
                for each in old:
                    log.warning("%s-%d moved from %s to %s", *place, each.path, directory.path)
                    each.remove_moved(place, delay_ms=0)
                    self._on_disk[each.path].discard(place)
                    each.files.sync_directory(each.path)  # or a power cut brings it back, with no mark to tell by
                directory.remove_mark(place)

    def _find_left_behind(self) -> Iterator[tuple[Place, str]]:
        """Logs that had moved, or were just about to, to a directory that is not here; and why they are not opened."""
        ids = {each.id.hex() for each in self._directories}
        for directory in self._directories:
            for place in sorted(self._on_disk[directory.path]):
                target_id = directory.moving_to(place)
                if target_id in ids:
                    directory.forget_move(place)  # it has not moved, or what is here would be gone
                elif target_id is not None:
                    yield place, _why_left_behind(place, directory, target_id)

    def _refuse_if_left_behind(self, place: Place, holding: LogDirectory, image: PartitionImage) -> None:
        """A follower that nobody relies on may go on from an older state."""
        if (reason := self._left_behind.get(place)) is None:
            return
        error = LeftBehind(reason)
        if holding.moving_to(place) is not None and not self.may_discard(image, error):
            raise error
        holding.forget_move(place)
        del self._left_behind[place]

    def moved(self, place: Place, source: LogDirectory, target: LogDirectory) -> None:
        self._on_disk[source.path].discard(place)
        self._on_disk[target.path].add(place)

    def prefer(self, place: Place, directory: LogDirectory) -> None:
        """If the log is made here some day, it is to be in this directory. Only so many are remembered."""
        self._preferred.pop(place, None)
        self._preferred[place] = directory
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def _holding(self, place: Place) -> LogDirectory | None:
        """The directory that has this partition, open or not."""
        holding = (each for each in self._directories if place in each.logs or place in self._on_disk[each.path])
        return next(holding, None)

    def _directory_for(self, place: Place, image: PartitionImage) -> LogDirectory:
        found = self._holding(place)
        if found is not None:
            self._refuse_if_left_behind(place, found, image)
            return found
        self._refuse_if_elsewhere(place, image)
        if not self._directories:
            raise DirectoryOffline("no log directory of this broker works")
        preferred = self._preferred.pop(place, None)
        if preferred is not None and preferred in self._directories:
            return preferred
        coming = [directory for directory, _ in self._loading.values()]
        # As in Kafka, the one with the fewest partitions. Not by bytes: to add those up for every new partition held
        # the event loop for half a second with 10,000 of them.
        return min(self._directories, key=lambda each: len(each.logs) + coming.count(each))

    def _refuse_if_elsewhere(self, place: Place, image: PartitionImage) -> None:
        """A log that is in a directory which does not work must not be begun anew in another one: it would be taken for
        the partition, and may have been the only replica."""
        table = self._table
        if not table.offline_directories:
            return
        told = image.directory_of(table.node_id)
        is_new = told == UNASSIGNED and directories.may_write(table.image) and image.partition_epoch == 0
        # What the controller was told may be old: the log had just moved to the directory that does not work now.
        may_have_moved = image.partition_epoch > 0 and self._is_relied_on(image)
        if not is_new and (may_have_moved or all(told != each.id for each in self._directories)):
            paths = ", ".join(table.offline_directories)
            raise DirectoryOffline(f"{place[0]}-{place[1]} is in a log directory that is offline: {paths}")

    def retire_strays(self) -> None:
        """Take away what is on disk of partitions that this broker is not assigned. Call it when the metadata is up to
        date: topics that were deleted meanwhile must not come back."""
        for directory in self._directories:
            try:
                for name in directory.retire_strays(self._is_assigned):
                    log.warning(
                        "%s: this broker has no such partition; renamed to %s, which may be removed",
                        directory.path,
                        name,
                    )
            except OSError as error:
                log.error("%s: strays cannot be taken away: %s", directory.path, error)
            self._on_disk[directory.path] &= set(directory.partitions())

    def _is_assigned(self, topic: str, index: int) -> bool:
        image = self._table.image.topics.get(topic)
        return (
            image is not None
            and index < len(image.partitions)
            and self._table.node_id in image.partitions[index].replicas
        )

    def delete(self, topic: str, index: int) -> None:
        """What there is of it here, open or not."""
        for directory in self._directories:
            on_disk = self._on_disk[directory.path]
            try:
                if (topic, index) in directory.logs or (topic, index) in on_disk:
                    directory.discard(topic, index)
            except OSError as error:
                log.error("deleting %s-%d failed, its files may stay behind: %s", topic, index, error)
            on_disk.discard((topic, index))


def _why_left_behind(place: Place, directory: LogDirectory, target_id: str) -> str:
    moved = f"{place[0]}-{place[1]} was moving to log directory {target_id}, which is offline"
    way_out = f"If that disk is lost, remove {directory.note_path(place)} to go on with this."
    return f"{moved}, and what is in {directory.path} may be older. {way_out}"


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
        delete_retention_ms=topic.delete_retention_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
    )


def check_records(log_on_disk: Log, offset: int) -> None:
    """Raises what is wrong with the batches at a place; a follower's fetch would get as many."""
    for part in log_on_disk.read(offset=offset, limit_bytes=CHECKED_BYTES_MAX, at_least_one=True):
        data = memoryview(part.file.read_at(part.position, part.length))
        for _, batch in iter_batches(data):
            check_batch(batch)
