"""What members of classic groups tell about themselves is kept in memory, up to a limit for all of a node's groups.

A member may tell eight megabytes, and stay for half an hour without a word (group.max.session.timeout.ms).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BYTES_MAX: Final = 256 << 20  # a thousand members with a long list of topics tell ten or twenty
COUNTED_EVERY_MS: Final = 1_000
MEMBER_BYTES: Final = 1_000  # and what belongs to it, about


class MemberMemory:
    """Those that leave are noticed when there seems to be no room any more: then all is counted anew."""

    def __init__(self, held_bytes: Callable[[], int]) -> None:
        self._held_bytes = held_bytes
        self._room_bytes = 0
        self._counted_ms: int | None = None

    def admits(self, told_bytes: int, now_ms: int) -> bool:
        wanted = told_bytes + MEMBER_BYTES
        if wanted > self._room_bytes and (self._counted_ms is None or now_ms - self._counted_ms >= COUNTED_EVERY_MS):
            self._room_bytes, self._counted_ms = BYTES_MAX - self._held_bytes(), now_ms
        if wanted > self._room_bytes:
            return False
        self._room_bytes -= wanted
        return True
