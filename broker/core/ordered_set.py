"""A set that is gone through in the order in which its items came, so that a run from a seed repeats.

The order of Python's own set depends on where objects lie in memory, and for strings on the hash seed.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class OrderedSet(dict[T, None]):
    __slots__ = ()

    def add(self, item: T) -> None:
        self[item] = None

    def discard(self, item: T) -> None:
        self.pop(item, None)
