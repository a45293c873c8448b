"""Recent FindCoordinator requests by group: most of them are from consumers that are about to join."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

RECENT_MS: Final = 1_000
SEEKERS_MAX: Final = 1_000


class _Question(NamedTuple):
    at_ms: int
    group_id: str
    connection: Any
    crowd: int  # open connections that had asked for the same group at that moment


class RecentLookups:
    """librdkafka asks over one connection, closes it, and asks again over the next. So clients are counted by how many
    connections were open at the same time."""

    def __init__(self) -> None:
        self._questions: deque[_Question] = deque(maxlen=SEEKERS_MAX)

    def asked(self, group_id: str, connection: Any, now_ms: int) -> None:
        questions = self._questions
        while questions and questions[0].at_ms < now_ms - RECENT_MS:
            questions.popleft()
        there = {each.connection for each in questions if each.group_id == group_id and not each.connection.is_closed}
        questions.append(_Question(now_ms, group_id, connection, len(there | {connection})))

    def count(self, group_id: str, now_ms: int) -> int:
        recent = (each for each in self._questions if each.group_id == group_id and each.at_ms >= now_ms - RECENT_MS)
        return max((each.crowd for each in recent), default=0)
