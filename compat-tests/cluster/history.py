"""What happened, as clients saw it: sent, acknowledged, read; and what a checker makes of it.

In the manner of Jepsen's Kafka workload: every value is unique (a producer and its number), so that whatever is lost,
doubled, out of order, or changed afterwards can be told from the history and the final state of the log alone.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Value(NamedTuple):
    producer: int
    number: int

    def encode(self, size: int = 0) -> bytes:
        return b"%d:%d " % self + b"x" * size

    @classmethod
    def decode(cls, data: bytes) -> Value:
        producer, _, number = data.split(b" ", 1)[0].partition(b":")
        return cls(int(producer), int(number))


# librdkafka takes a record for written when one that it sent later is: then it does not know where.
UNKNOWN = -1


class Place(NamedTuple):
    partition: int
    offset: int


@dataclass
class History:
    """Written by many threads."""

    sent: dict[Value, int] = field(default_factory=dict)  # to which partition
    acknowledged: list[tuple[Value, Place, float]] = field(default_factory=list)  # and when
    failed: dict[Value, str] = field(default_factory=dict)  # may or may not be in the log
    reads: dict[int, list[tuple[Place, Value]]] = field(default_factory=lambda: defaultdict(list))  # by consumer
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Report:
    sent: int
    acknowledged: int
    failed: int
    read: int
    in_the_log: int
    anomalies: Mapping[str, Sequence[str]]
    times: Mapping[int, Sequence[float]] = field(repr=False)  # when each partition's records were acknowledged
    longest_gap: float  # between acknowledgements of one partition, in seconds
    longest_silence: float  # without any acknowledgement at all

    def longest_gap_in(self, began: float, ended: float) -> float:
        """Of one partition, among the gaps that begin or end in that time."""
        return max((_gap_in(times, began, ended) for times in self.times.values()), default=0.0)

    @property
    def is_clean(self) -> bool:
        return not any(self.anomalies.values())

    def __str__(self) -> str:
        lines = [
            f"{self.sent} sent, {self.acknowledged} acknowledged, {self.failed} failed or unknown, "
            f"{self.read} read while it ran, {self.in_the_log} in the log at the end",
            f"longest gap between acknowledgements: {self.longest_gap:.2f} s of one partition, "
            f"{self.longest_silence:.2f} s of all",
        ]
        for kind, found in self.anomalies.items():
            lines.append(f"{kind}: {len(found)}" + "".join(f"\n    {each}" for each in found[:5]))
        return "\n".join(lines)


def check(history: History, final: Mapping[int, Sequence[tuple[int, Value]]]) -> Report:
    """`final`: every partition's records, read when all was well again."""
    at: dict[Place, Value] = {}
    places: dict[Value, list[Place]] = defaultdict(list)
    for partition, records in final.items():
        for offset, value in records:
            place = Place(partition, offset)
            at[place] = value
            places[value].append(place)
    anomalies = {
        "lost": list(_lost(history, places)),
        "offsets that disagree": list(_disagreeing(history, at, places)),
        "duplicates": [f"{value} at {found}" for value, found in places.items() if len(found) > 1],
        "out of order": list(_out_of_order(final)),
        "rewritten": list(_rewritten(history, at)),
        "skipped": list(_skipped(history, final)),
        "never sent": [f"{value} at {found}" for value, found in places.items() if value not in history.sent],
    }
    times = {partition: sorted(when) for partition, when in _times_by_partition(history).items()}
    return Report(
        times=times,
        sent=len(history.sent),
        acknowledged=len(history.acknowledged),
        failed=len(history.failed),
        read=sum(map(len, history.reads.values())),
        in_the_log=sum(map(len, final.values())),
        anomalies=anomalies,
        longest_gap=max(map(longest_gap, times.values()), default=0.0),
        longest_silence=longest_gap([when for _, _, when in history.acknowledged]),
    )


def _lost(history: History, places: Mapping[Value, Sequence[Place]]) -> Iterable[str]:
    for value, place, _ in history.acknowledged:
        if not places.get(value):
            yield f"{value} was acknowledged at {place}"


def _disagreeing(history: History, at: Mapping[Place, Value], places: Mapping[Value, Sequence[Place]]) -> Iterable[str]:
    seen: dict[Place, Value] = {}
    for value, place, _ in history.acknowledged:
        if place.offset == UNKNOWN:
            continue
        other = seen.setdefault(place, value)
        if other != value:
            yield f"{place} was acknowledged for {other} and for {value}"
        if at.get(place) != value and places.get(value):
            yield f"{value} was acknowledged at {place}, but is at {places[value]}"


def _out_of_order(final: Mapping[int, Sequence[tuple[int, Value]]]) -> Iterable[str]:
    for partition, records in final.items():
        last: dict[int, int] = {}
        for offset, value in records:
            if value.number < last.get(value.producer, -1):
                yield f"{value} at {Place(partition, offset)} comes after number {last[value.producer]}"
            last[value.producer] = value.number


def _rewritten(history: History, at: Mapping[Place, Value]) -> Iterable[str]:
    for consumer, reads in history.reads.items():
        for place, value in reads:
            if at.get(place) != value:
                yield f"consumer {consumer} read {value} at {place}, where now is {at.get(place)}"


def _skipped(history: History, final: Mapping[int, Sequence[tuple[int, Value]]]) -> Iterable[str]:
    """A consumer reads every record of a partition, in order: what it read is the beginning of what is there."""
    offsets = {partition: [offset for offset, _ in records] for partition, records in final.items()}
    for consumer, reads in history.reads.items():
        by_partition: dict[int, list[int]] = defaultdict(list)
        for place, _ in reads:
            by_partition[place.partition].append(place.offset)
        for partition, read in by_partition.items():
            expected = offsets.get(partition, [])
            for position, offset in enumerate(read):
                if expected[position : position + 1] != [offset]:
                    there = expected[position] if position < len(expected) else "the end"
                    yield f"consumer {consumer} read offset {offset} of partition {partition}, where {there} was next"
                    break


def _times_by_partition(history: History) -> Mapping[int, Sequence[float]]:
    times: dict[int, list[float]] = defaultdict(list)
    for _, place, when in history.acknowledged:
        times[place.partition].append(when)
    return times


def _gap_in(times: Sequence[float], began: float, ended: float) -> float:
    first, last = bisect_left(times, began), bisect_right(times, ended)
    return longest_gap(times[max(0, first - 1) : last + 1])


def longest_gap(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return max((later - earlier for earlier, later in pairwise(ordered)), default=0.0)
