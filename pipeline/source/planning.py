"""From options to ranges of offsets, through the broker's API, and from ranges to the pieces that tasks read."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tidemark.pipeline.source.client import EARLIEST, LATEST, ReadFailed, ReadingClient, Topic, TopicPartition
from tidemark.pipeline.source.fetching import DataLoss
from tidemark.pipeline.source.lake import Lake
from tidemark.pipeline.source.options import Position, ReadOptions, Selection
from tidemark.pipeline.source.segments import Place

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets first..end-1 of a partition, all of them committed by the cluster when this was planned."""

    topic: str
    partition: int
    first: int
    end: int
    in_lake: bool = False  # the topic has them no longer

    @property
    def size(self) -> int:
        return self.end - self.first


Offsets = dict[TopicPartition, int]


class Planner:
    """Asks one cluster what there is to read."""

    def __init__(self, cluster: ReadingClient, options: ReadOptions, lake: Lake | None = None) -> None:
        self._cluster = cluster
        self._options = options
        self._lake = lake
        self.topics: dict[str, Topic] = {}

    def partitions(self) -> list[TopicPartition]:
        """The selected partitions that exist now."""
        selection = self._options.selection
        self.topics = self._select(selection)
        every = sorted((name, each) for name, topic in self.topics.items() for each in topic.leaders)
        if not selection.assigned:
            return every
        missing = sorted(set(selection.assigned) - set(every))
        if missing:
            raise ReadFailed(f"There is no partition {_listed(missing)}.")
        return sorted(selection.assigned)

    def _select(self, selection: Selection) -> dict[str, Topic]:
        if selection.pattern is not None:
            matches = re.compile(selection.pattern).fullmatch
            # A pattern means the topics of users: Kafka's consumers leave out the internal ones, too.
            found = self._cluster.topics(None)
            return {name: topic for name, topic in found.items() if matches(name) and not topic.internal}
        names = selection.topics or sorted({topic for topic, _ in selection.assigned})
        found = self._cluster.topics(names)
        if missing := sorted(set(names) - set(found)):
            raise ReadFailed(f"There is no topic {', '.join(missing)} at {self._cluster.bootstrap}.")
        return found

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The end of what may be read: the high watermark or, read_committed, the last stable offset."""
        wanted = dict.fromkeys(partitions, LATEST)
        return self._cluster.offsets(wanted, committed=self._options.committed)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._cluster.offsets(dict.fromkeys(partitions, EARLIEST), committed=False)

    def begin(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first that can be read: in the topic, or in the lake, which may go further back."""
        found = self.earliest(partitions)
        if self._lake is None:
            return found
        in_lake = {key: self._lake.first(key) for key in found}
        return {key: offset if (first := in_lake[key]) is None else min(first, offset) for key, offset in found.items()}

    def start(self, partitions: list[TopicPartition]) -> Offsets:
        position = self._options.starting
        found = self._resolve(position, partitions, option="startingOffsets")
        empty_handed = sorted(partition for partition, offset in found.items() if offset < 0)
        if empty_handed and not self._options.latest_if_no_time:
            raise ReadFailed(
                f"{_listed(empty_handed)} has no record at or after the starting time. To start at its end, set "
                "startingOffsetsByTimestampStrategy to latest."
            )
        return found | self.latest(empty_handed)

    def end(self, partitions: list[TopicPartition]) -> Offsets:
        found = self._resolve(self._options.ending, partitions, option="endingOffsets")
        return found | self.latest(partition for partition, offset in found.items() if offset < 0)

    def _resolve(self, position: Position, partitions: list[TopicPartition], *, option: str) -> Offsets:
        """An offset for each; -1 where no record is at or after the time asked for."""
        if position.bound is not None:
            return self.latest(partitions) if position.bound == LATEST else self.begin(partitions)
        if position.time is not None:
            return self._at_times(dict.fromkeys(partitions, position.time))
        given = position.times or position.offsets
        if set(given) != set(partitions):
            differing = sorted(set(given) ^ set(partitions))
            raise ReadFailed(f"{option} must name every partition that is read and no other; see {_listed(differing)}.")
        if position.times:
            return self._at_times(given)
        found = dict(position.offsets)
        found |= self.latest(each for each, offset in found.items() if offset == LATEST)
        return found | self.begin(each for each, offset in position.offsets.items() if offset == EARLIEST)

    def _at_times(self, times: Mapping[TopicPartition, int]) -> Offsets:
        found = self._cluster.offsets(times, committed=self._options.committed)
        if self._lake is None:
            return found
        for key, time in times.items():
            older = self._lake.first_since(key, time)
            if older is not None and (found[key] < 0 or older < found[key]):
                found[key] = older
        return found

    def ranges(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
        """What lies between, checked against what the log has now. Nothing past the latest offset is ever planned:
        files hold more than that, but it is not committed yet."""
        earliest, latest = self.earliest(start), self.latest(start)
        ranges = []
        for key in sorted(start):
            first, stop = start[key], end[key]
            if first < earliest[key] and first < stop:
                gone = min(earliest[key], stop)
                ranges += self._from_lake(key, first, gone)
                first = gone
            if stop > latest[key]:
                self._lost(key, max(first, latest[key]), stop)
                stop = latest[key]
            if first < stop:
                ranges.append(Range(topic=key[0], partition=key[1], first=first, end=stop))
        return ranges

    def _from_lake(self, key: TopicPartition, first: int, end: int) -> list[Range]:
        """What the topic has no longer, and the lake has. Before the lake's first record, and between its last and the
        topic's first, nothing may be missing: what neither has is lost."""
        lake = self._lake
        if lake is not None and (lake.end(key) or 0) < end:
            lake.look_again()  # it may have grown since
        begin = first if lake is None else max(first, lake.first(key) or 0)
        stop = first if lake is None else min(end, lake.end(key) or 0)
        if begin >= stop:
            self._lost(key, first, end)
            return []
        if first < begin:
            self._lost(key, first, begin)
        if stop < end:
            self._lost(key, stop, end)
        return [Range(topic=key[0], partition=key[1], first=begin, end=stop, in_lake=True)]

    def report_gone(
        self, first: Mapping[TopicPartition, int], stop: Mapping[TopicPartition, int], *, there: set[TopicPartition]
    ) -> None:
        """Partitions that were planned for, and whose topic has been deleted since."""
        for key in sorted(set(first) | set(stop)):
            if key not in there:
                self._lost(key, first.get(key, 0), max(first.get(key, 0) + 1, stop.get(key, 0)))

    def _lost(self, key: TopicPartition, first: int, end: int) -> None:
        loss = DataLoss(topic=key[0], partition=key[1], first=first, end=end)
        if self._options.fail_on_data_loss:
            raise loss
        _log.warning("%s-%d: offsets %d to %d are not there and left out", *key, first, end - 1)

    def places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Place]:
        """Where the leaders' files of these partitions are, on whatever machine that is."""
        if self._options.access == "protocol":
            return {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for name, partition in partitions:
            by_leader.setdefault(self.topics[name].leaders[partition], []).append((name, partition))
        found = {}
        for leader, led in by_leader.items():
            for (name, partition), log_dir in self._cluster.log_dirs(leader, led).items():
                found[name, partition] = Place(
                    log_dir=_as_mounted(log_dir, self._options.moved),
                    cluster_id=self._cluster.cluster_id,
                    node_id=leader,
                    topic=name,
                    topic_id=self.topics[name].topic_id,
                    partition=partition,
                )
        return found


def split(ranges: list[Range], *, partitions_min: int | None, records_max: int | None) -> list[Range]:
    """Ranges cut into near-equal pieces: none over `records_max`, and about `partitions_min` in all, if given."""
    wanted = [1 if records_max is None else -(-each.size // records_max) for each in ranges]
    if partitions_min is not None and sum(wanted) < partitions_min:
        total = sum(each.size for each in ranges)
        wanted = [
            max(pieces, min(each.size, round(partitions_min * each.size / total)))
            for pieces, each in zip(wanted, ranges, strict=True)
        ]
    return [piece for each, pieces in zip(ranges, wanted, strict=True) for piece in _pieces(each, pieces)]


def _pieces(whole: Range, count: int) -> Iterable[Range]:
    bounds = [whole.first + whole.size * number // count for number in range(count + 1)]
    for first, end in pairwise(bounds):
        yield Range(topic=whole.topic, partition=whole.partition, first=first, end=end)


def _as_mounted(log_dir: str, moved: tuple[tuple[str, str], ...]) -> str:
    for there, here in moved:
        if log_dir == there or log_dir.startswith(there + os.sep):
            return here + log_dir[len(there) :]
    return log_dir


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
