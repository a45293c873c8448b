"""Recent FindCoordinator requests by group: most of them are from consumers that are about to join."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

RECENT_MS: Final = 1_000
LOOKUPS_MAX: Final = 1_000


class _Question(NamedTuple):
    at_ms: int
    group: int  # the hash of its id, which may be long
    connection: Any
    crowd: int  # open connections that had asked for the same group at that moment


class RecentLookups:
    """librdkafka asks over one connection, closes it, and asks again over the next. So clients are counted by how many
    connections were open at the same time."""

    def __init__(self) -> None:
        self._questions: deque[_Question] = deque(maxlen=LOOKUPS_MAX)

    def asked(self, group_id: str, connection: Any, now_ms: int) -> None:
        questions, group = self._questions, hash(group_id)
        while questions and questions[0].at_ms < now_ms - RECENT_MS:
            questions.popleft()
        there = {each.connection for each in questions if each.group == group and not each.connection.is_closed}
        questions.append(_Question(now_ms, group, connection, len(there | {connection})))

    def count(self, group_id: str, now_ms: int) -> int:
        group = hash(group_id)
        recent = (each for each in self._questions if each.group == group and each.at_ms >= now_ms - RECENT_MS)
        return max((each.crowd for each in recent), default=0)
