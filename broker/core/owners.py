"""Who things belong to that there is limited room for: a user, or an address where nobody has to name themselves. Where
there is no room for all of them, it is taken from whoever has most."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Generic, TypeVar

from tidemark.broker.core.principal import ANONYMOUS

T = TypeVar("T")


def owner_name(client: Any) -> str:
    """`client`: whatever has a `principal` and a `host`."""
    return client.host if client.principal == ANONYMOUS else str(client.principal)


class Owner(Generic[T]):
    __slots__ = ("items", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: OrderedDict[T, None] = OrderedDict()  # the longest unused first
        self.size = 0  # of all of them, where that counts: bytes, series, partitions


class Owners(Generic[T]):
    """Those that have something."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner[T]] = {}
        self._count = 0

    def named(self, name: str) -> Owner[T]:
        return self._owners.get(name) or Owner(name)

    def of(self, client: Any) -> Owner[T]:
        return self.named(owner_name(client))

    def add(self, owner: Owner[T], item: T) -> None:
        self._owners[owner.name] = owner
        owner.items[item] = None
        self._count += 1

    def remove(self, owner: Owner[T], item: T) -> None:
        del owner.items[item]
        self._count -= 1
        if not owner.items:
            del self._owners[owner.name]

    def with_most(self, newcomer: Owner[T]) -> Owner[T] | None:
        """Who gives one up for a newcomer's next: perhaps the newcomer itself. None: nobody has more than the newcomer
        would then."""
        count = len(newcomer.items)
        if count and count * len(self._owners) >= self._count:
            return newcomer  # it has its share: a flood does not even look at all the others
        most = max(self._owners.values(), key=lambda each: len(each.items), default=newcomer)
        if len(most.items) > count + 1:
            return most
        return newcomer if count else None

    def largest(self, newcomer: Owner[T], size: int) -> Owner[T] | None:
        """Who gives something up so that a newcomer can have so much more. None: nobody has more than it would then."""
        most = max(self._owners.values(), key=lambda each: each.size, default=newcomer)
        return most if most.size > newcomer.size + size else None
