"""What a request names more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from tidemark.broker.core.sliced_work import Job

AT_ONCE: Final = 256
SHARDS: Final = 64

T = TypeVar("T", bound=Hashable)


def repeated(items: Iterable[T]) -> set[T]:
    return {item for item, count in Counter(items).items() if count > 1}


class Seen(Generic[T]):
    """What was named already, of very much.

    One set of half a million would keep the event loop whenever it grows (each time all of it is moved) and when it
    goes. So there are many small ones; `forget` lets go of one after the other."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: list[set[T]] = [set() for _ in range(SHARDS)]

    def add(self, item: T) -> bool:
        """Whether it is new."""
        shard = self._shards[hash(item) % SHARDS]
        before = len(shard)
        shard.add(item)
        return len(shard) > before

    def forget(self) -> Job[None]:
        if sum(map(len, self._shards)) > AT_ONCE:
            while self._shards:
                self._shards.pop()
                yield


def find_repeated(items: Iterable[T]) -> Job[set[T]]:
    """As `repeated`, for a request that may name very many."""
    seen, twice = Seen[T](), set[T]()
    for count, item in enumerate(items):
        if not seen.add(item):
            twice.add(item)
        if count % AT_ONCE == AT_ONCE - 1:
            yield
    yield from seen.forget()
    return twice
