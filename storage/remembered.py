"""Producer states as they were a little while ago, in memory.

A truncation must bring the producers back to what they were at its offset. From the last snapshot on disk that means
reading the whole segment; from one of these, a megabyte or so.
"""

from __future__ import annotations

from tidemark.storage.producers import Producers

_EVERY_BYTES = 1 << 20
_EVERY_BYTES_PER_PRODUCER = 16 << 10  # so that copying stays a small part of the work of appending
_PRODUCERS_MAX = 1024
_RECENT = 4
_KEPT_MAX = 8


class RememberedStates:
    """Copies of a log's producers by offset: the last few close together, earlier ones further apart."""

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        self._copies: list[tuple[int, Producers]] = []

    def __len__(self) -> int:
        return len(self._copies)

    @staticmethod
    def interval_bytes(producers: Producers) -> int:
        """How much is appended before the next copy is due."""
        return max(_EVERY_BYTES, len(producers) * _EVERY_BYTES_PER_PRODUCER)

    def add(self, offset: int, producers: Producers) -> None:
        """Keeps a copy of the producers as they are with the log ending at `offset`."""
        if len(producers) > _PRODUCERS_MAX:
            self._copies.clear()
            return
        self._copies.append((offset, producers.copy()))
        if len(self._copies) > _KEPT_MAX:
            self._copies = self._copies[0:-_RECENT:2] + self._copies[-_RECENT:]

    def newest(self, *, up_to: int) -> tuple[int, Producers] | None:
        """The last copy made at or before an offset; later ones are dropped, for the log is truncated there."""
        while self._copies and self._copies[-1][0] > up_to:
            self._copies.pop()
        return self._copies[-1] if self._copies else None

    def clear(self) -> None:
        self._copies.clear()
