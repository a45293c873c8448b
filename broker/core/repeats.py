"""What a request names more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from tidemark.broker.core.sliced_work import Job

AT_ONCE: Final = 256
SHARDS: Final = 64

T = TypeVar("T", bound=Hashable)


def repeated(items: Iterable[T]) -> set[T]:
    return {item for item, count in Counter(items).items() if count > 1}


def find_repeated(items: Iterable[T]) -> Job[set[T]]:
    """As `repeated`, for a request that may name very many.

    One set of half a million would keep the event loop whenever it grows (each time all of it is moved) and when it
    goes. So there are many small ones."""
    shards: list[set[T]] = [set() for _ in range(SHARDS)]
    twice: set[T] = set()
    for count, item in enumerate(items):
        seen = shards[hash(item) % SHARDS]
        if item in seen:
            twice.add(item)
        seen.add(item)
        if count % AT_ONCE == AT_ONCE - 1:
            yield
    if sum(map(len, shards)) > AT_ONCE:
        while shards:
            shards.pop()
            yield
    return twice
