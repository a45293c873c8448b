"""Recent FindCoordinator requests by group: most of them are from consumers that are about to join."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

RECENT_MS: Final = 1_000
LOOKUPS_MAX: Final = 1_000


class _Lookup(NamedTuple):
    at_ms: int
    group: int  # the hash of its id, which may be long
    connection: Any
    crowd: int  # open connections that had asked for the same group at that moment


class RecentLookups:
    """librdkafka asks over one connection, closes it, and asks again over the next. So clients are counted by how many
    connections were open at the same time."""

    def __init__(self) -> None:
        self._lookups: deque[_Lookup] = deque(maxlen=LOOKUPS_MAX)

    def asked(self, group_id: str, connection: Any, now_ms: int) -> None:
        lookups, group = self._lookups, hash(group_id)
        while lookups and lookups[0].at_ms < now_ms - RECENT_MS:
            lookups.popleft()
        there = {each.connection for each in lookups if each.group == group and not each.connection.is_closed}
        lookups.append(_Lookup(now_ms, group, connection, len(there | {connection})))

    def count(self, group_id: str, now_ms: int) -> int:
        group = hash(group_id)
        recent = (each for each in self._lookups if each.group == group and each.at_ms >= now_ms - RECENT_MS)
        return max((each.crowd for each in recent), default=0)
