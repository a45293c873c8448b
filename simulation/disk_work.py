"""What a thread does with the disk. It is all done in one moment, but it takes its time: the process may be killed, or
the power lost, between two of its steps. Then what came after the sync that it waited for has not happened."""

from __future__ import annotations

from collections.abc import Callable


class DiskWork:
    def __init__(self, began: float) -> None:
        self._began = began  # by the world's clock
        self._syncs: list[tuple[float, int, Callable[[], None]]] = []  # when each ends, after how many steps, and how
        self._steps: list[Callable[[], None]] = []  # what takes back what was done after the first sync, in its order

    @property
    def can_be_interrupted(self) -> bool:
        """Whether what is done now comes after a sync."""
        return bool(self._syncs)

    def add_sync(self, end: Callable[[], None], *, after_seconds: float) -> None:
        self._syncs.append((self._began + after_seconds, len(self._steps), end))

    def add_step(self, take_back: Callable[[], None]) -> None:
        self._steps.append(take_back)

    def finish(self) -> None:
        for _, _, end in self._syncs:
            end()

    def interrupt(self, now: float) -> None:
        for ends_at, steps_before, end in self._syncs:
            if ends_at > now:
                for take_back in reversed(self._steps[steps_before:]):
                    take_back()
                return
            end()
