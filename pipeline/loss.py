"""Records that are gone before we read them: which, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.cluster import Partition


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


def sentence(losses: list[Lost]) -> str:
    return f"Records are gone that were not read yet: {'; '.join(map(str, losses))}"
