"""Member ids that were given out and that no client has joined with yet (KIP-394), within a limit of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tidemark.broker.groups.timers import Timer

BYTES_MAX: Final = 16 << 20  # of one shard
ENTRY_BYTES: Final = 2_000  # a group, a timer and what belongs to them, about

Forget = Callable[[int], None]


class ExpectedMembers:
    """Clients can ask for any number of member ids, in any number of groups. Beyond the limit the oldest is forgotten:
    its client gets UNKNOWN_MEMBER_ID and asks for another."""

    __slots__ = ("_bytes", "_entries")

    def __init__(self) -> None:
        self._entries: deque[tuple[int, Forget, Timer | None]] = deque()
        self._bytes = 0

    def add(self, forget: Forget, *, id_length: int, now_ms: int, timer: Timer | None = None) -> None:
        """`timer` has no action any more when the member has joined, or its time is over."""
        while self._entries and (oldest := self._entries[0][2]) is not None and oldest.action is None:
            self._bytes -= self._entries.popleft()[0]
        cost = ENTRY_BYTES + 4 * id_length
        self._entries.append((cost, forget, timer))
        self._bytes += cost
        while self._bytes > BYTES_MAX:
            cost, forget_oldest, _ = self._entries.popleft()
            self._bytes -= cost
            forget_oldest(now_ms)
