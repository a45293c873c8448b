"""Records that are gone before we read them: which, and how many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.pipeline.cluster import Partition

SIGHTS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    topic: str
    partition: int
    first: int
    last: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} offsets {self.first} to {self.last} ({self.last - self.first + 1} records)"
        )


def lost(positions: Mapping[Partition, int], ranges: Mapping[Partition, tuple[int, int]]) -> list[Lost]:
    """Where the log now starts after our position. Holes inside the log (compaction, transactions) are no loss.

    A position after the log's end is one, too: the topic was deleted and made anew, and our offsets mean nothing there.
    """
    found = []
    for (topic, partition), position in sorted(positions.items()):
        low, high = ranges.get((topic, partition), (position, position))
        if low > position:
            found.append(Lost(topic=topic, partition=partition, first=position, last=low - 1))
        elif position > high:
            found.append(Lost(topic=topic, partition=partition, first=high, last=position - 1))
    return found


class LossWatch:
    """Finds, while a pipeline goes on past losses, what batches went past: Spark does not say so itself.

    A batch has lost what lies between its start and the log's start as it was seen before the batch began. What was
    deleted while the batch ran may or may not have been read; it is not called lost.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[Partition, tuple[int, int]]]] = deque(maxlen=SIGHTS_MAX)
        self._reported: dict[Partition, int] = {}

    def see(self, ranges: Mapping[Partition, tuple[int, int]], *, at: float) -> None:
        self._seen.append((at, ranges))

    def report(self, losses: Iterable[Lost]) -> None:
        for each in losses:
            self._reported[each.topic, each.partition] = each.last

    def passed(self, starts: Mapping[Partition, int], *, began: float) -> list[Lost]:
        """What a batch that began then, at these offsets, can never have seen, and that was not reported yet."""
        ranges = next((ranges for at, ranges in reversed(self._seen) if at < began), {})
        found = [
            Lost(topic=topic, partition=partition, first=first, last=low - 1)
            for (topic, partition), start in sorted(starts.items())
            if (low := ranges.get((topic, partition), (start, start))[0])
            > (first := max(start, self._reported.get((topic, partition), -1) + 1))
        ]
        self.report(found)
        return found


def sentence(losses: list[Lost]) -> str:
    return f"Records are gone that were not read yet: {'; '.join(map(str, losses))}"
