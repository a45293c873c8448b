"""The roles that the metadata gives this node: which partitions it leads, which it follows, and which it leaves.

One object follows the metadata image and keeps the replica table in step with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable
from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.time_slice import SLICE_SECONDS
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image, PartitionImage, TopicImage
from tidemark.broker.metadata.internal import INTERNAL_TOPICS
from tidemark.broker.replication.flushing import STALLED_SECONDS
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.leadership import Leadership
from tidemark.broker.replication.log_opening import LogOpening
from tidemark.broker.replication.log_retries import LogRetries
from tidemark.broker.replication.partition import InternalPartition, Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_logs import Key, Place, ReplicaLogs
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.replicator import Led, NoReplicator, Replicator, UnopenedPartition
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.storage import DirectoryOffline, Log, LogDirectory, LogOffline, StorageError

log = logging.getLogger(__name__)

LEADERSHIP_IS_OVER: Final = "The leadership is over."  # what was accepted before may be in the log all the same


class RoleAssignment:
    def __init__(self, table: ReplicaTable, logs: ReplicaLogs, threads: SyncThreads) -> None:
        self.replicator: Replicator = NoReplicator()
        self.opening = LogOpening(table, logs, assign=self.assign)
        self.retries = LogRetries(table, logs, self.opening, assign=self.assign)
        self._table = table
        self._logs = logs
        self._threads = threads
        self._closed = False
        self._damaged: dict[tuple[bytes, int], str] = {}  # led here until another does, and then to be rebuilt
        self._put_off: dict[Key, None] = {}  # roles that the image gives and that are still to be assumed
        self._to_drop: dict[Place, list[HostedTopic]] = {}  # of deleted topics
        self._truncating: dict[Place, Followed] = {}  # retired, while a thread is still at work on their logs
        self._to_delete: set[Place] = set()  # as soon as that thread is done
        self._writing: dict[Key, Partition] = {}  # no longer led, while a thread still writes what they had accepted
        self._after_write: set[Key] = set()  # roles to be assumed as soon as that thread is done
        logs.before_opening = self._drop
        self._slice_end = 0.0
        # Called with trouble that may be a disk's: see `directory_failures`.
        self.suspect_disk: Callable[[str, BaseException], None] = lambda _path, _error: None
        # Called with a replica whose log was opened: the controller is to know in which directory it is (KIP-858).
        self.placed: Callable[[Replica], None] = lambda _replica: None

    # -- following the metadata --------------------------------------------

    def follow(self, old: Image, new: Image) -> None:
        """Open what appeared, delete what went, lead and follow as assigned, adopt changed settings."""
        if self._closed:
            return
        self._table.image = new
        self._slice_end = monotonic() + SLICE_SECONDS
        # Settings first: with fewer in sync nothing may be committed by a min.insync.replicas that no longer holds.
        if old.configs is not new.configs:
            self._follow_configs(old, new)
        if old.topics is not new.topics:
            self._follow_topics(old, new)
        if old.brokers is not new.brokers:
            self.replicator.brokers_changed()

    def _follow_topics(self, old: Image, new: Image) -> None:
        for topic_id, name in old.topic_names.items():
            if topic_id not in new.topic_names:
                self._drop_topic(name)
        for name, topic in new.topics.items():
            if old.topics.get(name) is not topic:
                self._host(new, topic)

    def _follow_configs(self, old: Image, new: Image) -> None:
        for resource in {**old.configs, **new.configs}:
            if resource[0] == TOPIC_RESOURCE and new.configs.get(resource) is not old.configs.get(resource):
                self._reconfigure(new, resource[1])

    def reconfigure_all(self, config: BrokerConfig, image: Image) -> None:
        """The broker's own defaults changed: every topic that relies on them follows."""
        self._table.config = config
        for name in self._table.topics:
            self._reconfigure(image, name)

    async def stop_following(self) -> None:
        """What the metadata says from now on is not followed; deleted topics go first. On the event loop, to which the
        waiting clients of their partitions belong; in slices, since others may need this node's vote."""
        self._closed = True
        while self._to_drop:
            self._drop_until(monotonic() + SLICE_SECONDS)
            await asyncio.sleep(0)
        while self._truncating:
            await asyncio.wait([each.truncated for each in self._truncating.values()])

    def close(self) -> None:
        """As `stop_following`, where no event loop goes on."""
        self._closed = True
        self._drop_until(math.inf)
        self._truncating.clear()
        self._writing.clear()

    def _host(self, image: Image, topic: TopicImage) -> None:
        table = self._table
        hosted = table.topics.get(topic.name)
        before: tuple[PartitionImage, ...] = ()
        if hosted is None:
            config = table.topic_config(image, topic.name)
            hosted = HostedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                config=config,
                image=topic,
                unwritten_on_node=table.unwritten,
            )
            table.topics[topic.name] = table.topics_by_id[topic.topic_id] = hosted
        else:
            before, hosted.image = hosted.image.partitions, topic
        for index, partition in enumerate(topic.partitions):
            if index < len(before) and before[index] is partition:
                continue
            if not self.opening.defers(hosted, index) and not self._puts_off((topic.topic_id, index)):
                self.assign(hosted, index)

    @property
    def is_behind(self) -> bool:
        """Whether some roles are still as an earlier image gave them."""
        return bool(self._put_off)

    def _puts_off(self, key: Key) -> bool:
        """A broker that dies leaves thousands of partitions to others at once. What does not fit into a slice follows
        in the next turns of the loop, as if the metadata had come a little later."""
        if not self.opening.is_in_background or monotonic() < self._slice_end:
            return False
        if not self._put_off:
            asyncio.get_running_loop().call_soon(self._catch_up)
        self._put_off[key] = None
        return True

    def _catch_up(self) -> None:
        slice_end = monotonic() + SLICE_SECONDS
        while self._put_off and not self._closed:
            key = next(iter(self._put_off))
            del self._put_off[key]
            self._assume(key)
            if self._put_off and monotonic() >= slice_end:
                asyncio.get_running_loop().call_soon(self._catch_up)
                return

    def _drop_topic(self, name: str) -> None:
        hosted = self._table.topics.pop(name, None)
        if hosted is None:
            return
        self._table.topics_by_id.pop(hosted.topic_id, None)
        for led in hosted.partitions.values():
            led.count_records()
        self._table.past_traffic.add(hosted.traffic)
        if not self._to_drop and self.opening.is_in_background:
            asyncio.get_running_loop().call_soon(self._drop_in_slices)
        for index in range(len(hosted.image.partitions)):
            self._to_drop.setdefault((name, index), []).append(hosted)
        self._drop_until(self._slice_end if self.opening.is_in_background else math.inf)

    def _drop_in_slices(self) -> None:
        """Clients do not find the topic any more; its logs, which may be thousands, go little by little."""
        self._drop_until(monotonic() + SLICE_SECONDS)
        if self._to_drop:
            asyncio.get_running_loop().call_soon(self._drop_in_slices)

    def _drop_until(self, slice_end: float) -> None:
        while self._to_drop and monotonic() < slice_end:
            self._drop(next(iter(self._to_drop)))

    def _drop(self, place: Place) -> None:
        """Also before a log is opened there: a new topic of the same name must not find the old one's."""
        for hosted in self._to_drop.pop(place, ()):
            try:
                if hosted.replica(place[1]) is not None:
                    self._retire(hosted, place[1], LogOffline("the topic was deleted"))
                if place in self._truncating:
                    self._to_delete.add(place)
                elif not self._logs.is_loading((hosted.topic_id, place[1])):  # or it goes when it is loaded
                    self._logs.delete(*place)
            except Exception:
                log.exception("%s-%d could not be deleted", *place)

    def _reconfigure(self, image: Image, name: str) -> None:
        hosted = self._table.topics.get(name)
        if hosted is None:
            return
        hosted.config = self._table.topic_config(image, name)
        for replica in hosted.replicas():
            replica.configure(hosted.config)
            replica.log.config = self._logs.config_of(hosted)

    # -- roles -------------------------------------------------------------

    def assign(self, hosted: HostedTopic, index: int, load_error: Exception | None = None) -> None:
        """Assume the role that the image gives this node. `load_error` is what loading the log ran into."""
        image = hosted.image.partitions[index]
        own_id = self._table.node_id
        if (followed := self._truncating_for(hosted, index, image)) is not None:
            self._assign_when_truncated(followed, (hosted.topic_id, index))
            self._watch_stall((hosted.topic_id, index), image)
            return
        if own_id not in image.replicas:
            self._leave(hosted, index)
            return
        if self._waits_for_write(hosted, index, image):
            self._watch_stall((hosted.topic_id, index), image)
            return
        try:
            if image.leader == own_id:
                self._lead(hosted, index, image, load_error)
            else:
                self._follow(hosted, index, image, load_error)
            hosted.offline.pop(index, None)
            if (replica := hosted.replica(index)) is not None:
                self.placed(replica)
        except (OSError, StorageError) as error:
            if hosted.offline.get(index) != str(error):
                log.error("%s-%d cannot be opened and is offline: %s", hosted.name, index, error)
            self._take_offline(hosted, index, error)
            if image.leader == own_id:
                self._leave_to_another(hosted, index, image, error)

    def _truncating_for(self, hosted: HostedTopic, index: int, image: PartitionImage) -> Followed | None:
        """The follower that is in the way of a role: its log is being truncated, and so not to be touched. The disk
        decides for how long: until then this node neither leads the partition nor lets go of it, nor makes another of
        the same name."""
        place = (hosted.name, index)
        self._drop(place)
        if (retired := self._truncating.get(place)) is not None:
            return retired
        followed, own_id = hosted.followed.get(index), self._table.node_id
        may_stay = own_id in image.replicas and image.leader != own_id
        return followed if followed is not None and followed.is_truncating and not may_stay else None

    def _assign_when_truncated(self, followed: Followed, key: Key) -> None:
        def assign(truncated: asyncio.Future[None]) -> None:
            truncated.exception()  # whose fetcher it was says why it failed
            self._assume(key)

        followed.truncated.add_done_callback(assign)

    def _waits_for_write(self, hosted: HostedTopic, index: int, image: PartitionImage) -> bool:
        """Whether a thread still writes what this node took as a leader that it is no longer. That leadership ends at
        once, and the next role begins where the batch ends: the disk decides when."""
        led, key = hosted.partitions.get(index), (hosted.topic_id, index)
        if led is not None and _is_written_to(led) and not self._still_leads(led, image):
            self._end_leadership(hosted, led)
        before = self._writing.get(key)
        if before is None or not _is_written_to(before):
            return False
        self._after_write.add(key)
        return True

    def _watch_stall(self, key: Key, image: PartitionImage) -> None:
        """A disk that hangs says nothing, and nobody leads as long as this node waits for it."""
        if image.leader == self._table.node_id:
            asyncio.get_running_loop().call_later(STALLED_SECONDS, self._leave_if_stalled, key, image)

    def _leave_if_stalled(self, key: Key, image: PartitionImage) -> None:
        hosted = self._table.topics_by_id.get(key[0])
        if self._closed or hosted is None or hosted.image.partitions[key[1]] is not image:
            return
        if key[1] not in hosted.partitions and key[1] not in hosted.offline:
            self._leave_to_another(hosted, key[1], image, LogOffline("its disk does not finish what it has begun"))
            self._watch_stall(key, image)

    def _still_leads(self, led: Partition, image: PartitionImage) -> bool:
        return image.leader == self._table.node_id and image.leader_epoch == led.leader_epoch

    def _end_leadership(self, hosted: HostedTopic, led: Partition) -> None:
        """The role that follows begins later, and is to know how far this one got."""
        if (directory := self._table.directory_of(led)) is not None:
            directory.high_watermarks[led.topic, led.index] = led.high_watermark
        self._retire(hosted, led.index, None)

    def _assume(self, key: Key) -> None:
        """A role that was put off, as the image gives it by now."""
        if self._closed:
            return
        try:
            self.opening.open_now(key)
        except Exception:
            log.exception("a partition could not change its role")

    def _lead(self, hosted: HostedTopic, index: int, image: PartitionImage, load_error: Exception | None) -> None:
        led = hosted.partitions.get(index)
        if led is not None and self._still_leads(led, image):
            led.apply_isr(isr=image.isr, replicas=image.replicas, partition_epoch=image.partition_epoch)
            self.replicator.consider_others(led)
            return
        log_on_disk, high_watermark = self._log_of(hosted, index, load_error)
        log_on_disk.check_online()  # or it would wait for a disk that may hang
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
            executor=self._threads.of_log(log_on_disk),
            high_watermark=None if leadership.is_alone else high_watermark,
            leadership=leadership,
            lag_seconds_max=self._table.lag_seconds_max,
            fails=self.step_aside,
            writers=self._table.writers_of(log_on_disk),
            traffic=hosted.traffic,
            unwritten=hosted.unwritten_of(index),
        )
        self._retire(hosted, index, None)
        hosted.partitions[index] = partition
        partition.update_high_watermark()

    def _follow(self, hosted: HostedTopic, index: int, image: PartitionImage, load_error: Exception | None) -> None:
        followed = hosted.followed.get(index)
        if (damage := self._damaged.pop((hosted.topic_id, index), None)) is not None:
            self._log_of(hosted, index, load_error)[0].fail(damage)
            raise LogOffline(damage)
        if followed is None:
            log_on_disk, high_watermark = self._log_of(hosted, index, load_error)
            log_on_disk.check_online()
            followed = Followed(
                topic=hosted.name,
                topic_id=hosted.topic_id,
                index=index,
                leader=image.leader,
                leader_epoch=image.leader_epoch,
                log=log_on_disk,
                config=hosted.config,
                executor=self._threads.of_log(log_on_disk),
                high_watermark=high_watermark,
                traffic=hosted.traffic,
            )
            self._retire(hosted, index, None)
            hosted.followed[index] = followed
        elif (followed.leader, followed.leader_epoch) == (image.leader, image.leader_epoch):
            return
        followed.follow(leader=image.leader, leader_epoch=image.leader_epoch)
        self.replicator.follow(followed)

    def _log_of(self, hosted: HostedTopic, index: int, load_error: Exception | None) -> tuple[Log, int]:
        """The log, open, and the high watermark as last known here."""
        replica = hosted.replica(index)
        if replica is not None:
            return replica.log, replica.high_watermark
        return self._logs.find_or_create(hosted, index, load_error)

    def _leadership(self, image: PartitionImage, *, start_offset: int) -> Leadership:
        return Leadership(
            node_id=self._table.node_id,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            start_offset=start_offset,
            now=monotonic(),
            is_eligible=self._table.is_eligible,
        )

    def _leave(self, hosted: HostedTopic, index: int) -> None:
        """This node has no replica of it any more."""
        hosted.offline.pop(index, None)
        hosted.unwritten.pop(index, None)
        if hosted.replica(index) is not None:
            self._retire(hosted, index, None)
        if not self._logs.is_loading((hosted.topic_id, index)):
            self._logs.delete(hosted.name, index)

    def _retire(self, hosted: HostedTopic, index: int, error: Exception | None) -> None:
        """End the role that this node has had; the log stays."""
        led = hosted.partitions.pop(index, None)
        if led is not None:
            led.resign(error or Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADERSHIP_IS_OVER))
            if _is_written_to(led) and not self._closed:
                self._remember_write(led)
        followed = hosted.followed.pop(index, None)
        if followed is not None:
            self.replicator.unfollow(followed)
            followed.retire()
            if followed.is_truncating:
                self._remember_truncation((hosted.name, index), followed)

    def _remember_truncation(self, place: Place, followed: Followed) -> None:
        def forget(truncated: asyncio.Future[None]) -> None:
            truncated.exception()  # nobody needs the log
            if self._truncating.pop(place, None) is not None and place in self._to_delete:
                self._to_delete.discard(place)
                self._logs.delete(*place)

        self._truncating[place] = followed
        followed.truncated.add_done_callback(forget)

    def _remember_write(self, led: Partition) -> None:
        key = led.topic_id, led.index

        def forget(written: asyncio.Future[Exception | None]) -> None:
            if (error := written.result()) is not None:
                self.suspect_disk(led.log.directory, error)
            if self._writing.get(key) is led:
                del self._writing[key]
                if key in self._after_write:
                    self._after_write.discard(key)
                    self._assume(key)

        self._writing[key] = led
        led.written().add_done_callback(forget)

    # -- trouble -----------------------------------------------------------

    def failed(self, replica: Replica, error: Exception) -> None:
        """A replica's log is offline: it cannot be followed any further."""
        hosted = self._table.topics_by_id.get(replica.topic_id)
        if hosted is not None and hosted.replica(replica.index) is replica:
            self._take_offline(hosted, replica.index, error)
        self.suspect_disk(replica.log.directory, error)

    def step_aside(self, partition: Partition, error: Exception) -> None:
        """The disk of a partition that this node leads is in trouble: another is to lead it."""
        self.replicator.step_aside(partition, error)
        self.suspect_disk(partition.log.directory, error)

    def superseded(self, partition: Led) -> None:
        """The controller says that another broker leads it by now. The metadata that says so may be long in coming: if
        the disk hangs, say, which holds it here. A reader that has heard of the new leader's records and asks this one
        for more would be told that there is no such offset."""
        hosted = self._table.topics_by_id.get(partition.topic_id)
        led = None if hosted is None else hosted.partitions.get(partition.index)
        if hosted is None or led is None or led is not partition:
            return
        self._end_leadership(hosted, led)

    def directory_failed(self, directory: LogDirectory, reason: str) -> None:
        """Nothing in it is led or followed any more."""
        error = DirectoryOffline(reason)
        for hosted in list(self._table.topics.values()):
            for replica in hosted.replicas():
                if os.path.dirname(replica.log.directory) == directory.path:
                    if isinstance(replica, Partition):
                        self.replicator.step_aside(replica, error)
                    self._take_offline(hosted, replica.index, error)
        for key, led in list(self._writing.items()):
            if key in self._after_write and os.path.dirname(led.log.directory) == directory.path:
                self._after_write.discard(key)
                self._assume(key)  # as far as that goes: nothing is to be waited for any more

    def rebuild(self, partition: Partition, damage: str) -> None:
        """The log of a partition that this node leads is damaged: another is to lead it, and this node gets its log
        anew from that one."""
        self._damaged[partition.topic_id, partition.index] = damage
        self.step_aside(partition, LogOffline(damage))

    def _take_offline(self, hosted: HostedTopic, index: int, error: Exception) -> None:
        self._retire(hosted, index, error)
        hosted.offline[index] = str(error)
        self.retries.add((hosted.topic_id, index), error)

    def _leave_to_another(self, hosted: HostedTopic, index: int, image: PartitionImage, error: Exception) -> None:
        if self._table.is_leased:
            leadership = self._leadership(image, start_offset=0)
            unopened = UnopenedPartition(
                topic=hosted.name, topic_id=hosted.topic_id, index=index, leadership=leadership
            )
            self.replicator.step_aside(unopened, error)


def _is_written_to(led: Partition) -> bool:
    """Whether a thread is to write a batch yet, or does so now. What becomes of an offline log waits for nothing."""
    return led.log.is_appending and not led.log.is_offline
