"""Who clients' instances belong to: a user, or an address where nobody has to name themselves. Where there is no room
for all of them, it is taken from whoever has most."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tidemark.broker.core.principal import ANONYMOUS


class Owner:
    __slots__ = ("ids", "name", "series_count")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: OrderedDict[bytes, None] = OrderedDict()  # of its instances, the longest silent first
        self.series_count = 0


class Owners:
    """Those that have an instance."""

    def __init__(self) -> None:
        self._owners: dict[str, Owner] = {}
        self._ids_count = 0

    def of(self, connection: Any) -> Owner:
        is_nobody = connection.principal == ANONYMOUS
        name = connection.host if is_nobody else str(connection.principal)
        return self._owners.get(name) or Owner(name)

    def add(self, owner: Owner, instance_id: bytes) -> None:
        self._owners[owner.name] = owner
        owner.ids[instance_id] = None
        self._ids_count += 1

    def remove(self, owner: Owner, instance_id: bytes) -> None:
        del owner.ids[instance_id]
        self._ids_count -= 1
        if not owner.ids:
            del self._owners[owner.name]

    def with_most_instances(self, newcomer: Owner) -> Owner | None:
        """Who gives one up for a newcomer's next. None: nobody has more than the newcomer would then."""
        count = len(newcomer.ids)
        if count and count * len(self._owners) >= self._ids_count:
            return newcomer  # it has its share: a flood does not even look at all the others
        most = max(self._owners.values(), key=lambda each: len(each.ids))
        if len(most.ids) > count + 1:
            return most
        return newcomer if count else None

    def with_most_series(self) -> Owner:
        return max(self._owners.values(), key=lambda each: each.series_count)
