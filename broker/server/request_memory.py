"""A budget of bytes for requests that are still arriving, shared by all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Granted = Callable[[int], bool]  # told the size; False: no longer wanted


class MemoryBudget:
    """Grants in the order of asking. One request may always go on, however large: a limit must not be a deadlock."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Granted]] = deque()

    def reserve(self, size: int, granted: Granted) -> None:
        """Calls `granted` at once if there is room, or when there is."""
        self._waiting.append((size, granted))
        self._grant()

    def release(self, size: int) -> None:
        if size:
            self.used_bytes -= size
            self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if self.used_bytes and self.used_bytes + size > self.limit_bytes:
                return
            self._waiting.popleft()
            self.used_bytes += size
            if not granted(size):
                self.used_bytes -= size
