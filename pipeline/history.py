"""What a run did, batch by batch, in bounded memory however long it runs: totals are exact, charts lose detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from tidemark.pipeline.progress import Progress

BATCHES_MAX = 10_000


@dataclass(slots=True)
class Totals:
    rows: int = 0
    batches: int = 0
    busy_seconds: float = 0.0


class History(Sequence[Progress]):
    """The batches of a run. Once there are too many, every second of each sink's is let go."""

    def __init__(self, *, batches_max: int = BATCHES_MAX) -> None:
        self._batches_max = batches_max
        self._kept: list[Progress] = []
        self._every = 1  # of so many batches one is kept
        self.totals: dict[str, Totals] = {}
        self.newest: dict[str, Progress] = {}

    def note(self, progress: Progress) -> None:
        totals = self.totals.setdefault(progress.sink, Totals())
        totals.rows += progress.rows
        totals.batches += 1
        totals.busy_seconds += progress.batch_seconds
        self.newest[progress.sink] = progress
        if totals.batches % self._every:
            return
        self._kept.append(progress)
        if len(self._kept) >= self._batches_max:
            self._kept = self._every_second()
            self._every *= 2

    def _every_second(self) -> list[Progress]:
        """Sink by sink: of two that take turns, one would be gone from the charts."""
        seen: Counter[str] = Counter()
        kept = []
        for each in self._kept:
            seen[each.sink] += 1
            if seen[each.sink] % 2 == 0:
                kept.append(each)
        return kept

    @overload
    def __getitem__(self, index: int) -> Progress: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Progress]: ...
    def __getitem__(self, index: int | slice) -> Progress | Sequence[Progress]:
        return self._kept[index]

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Progress]:
        return iter(self._kept)
