"""Lines that are written by a thread, so that the event loop never waits for whoever takes them.

A pipe that nobody reads, a terminal that is stopped, a file on a disk that hangs: a write to any of them may never end,
and a node that waited for it would lose its lease because of a line of its log. So many lines wait to be written; those
that come then are counted, and how many they were is told where they are missing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

WAITING_MAX: Final = 5_000  # lines
CHARACTERS_MAX: Final = 16 << 20  # of lines that wait: one with a traceback may have tens of thousands
TOGETHER_MAX: Final = 100  # lines in one write
EXIT_SECONDS_MAX: Final = 2.0  # for what waits when the process ends


class BackgroundLines:
    """What a `logging.StreamHandler` needs of a stream. `write_now` gets some lines at a time, and may wait;
    `tell_lost` makes a line of how many are missing."""

    def __init__(
        self,
        write_now: Callable[[str], object],
        *,
        tell_lost: Callable[[int], str],
        waiting_max: int | None = None,
        characters_max: int = CHARACTERS_MAX,
    ) -> None:
        self._write_now = write_now
        self._tell_lost = tell_lost
        self._waiting_max = WAITING_MAX if waiting_max is None else waiting_max
        self._characters_max = characters_max
        # Of the queues only this one may be put to while it is being put to: the garbage collector may come in between,
        # and what it frees may log. A number stands for lines that are missing there: how many were lost until then.
        self._waiting: SimpleQueue[str | int | threading.Event] = SimpleQueue()
        # Each is counted on one side only: by those who log, one at a time, or by the thread.
        self._came = self._taken = 0  # characters
        self._lost = self._marked = self._told = 0  # lines
        threading.Thread(target=self._run, name="log", daemon=True).start()
        atexit.register(self.drain)

    def write(self, line: str) -> None:
        if self._waiting.qsize() >= self._waiting_max or self._came - self._taken >= self._characters_max:
            self._lost += 1
            return
        if self._lost > self._marked:
            self._marked = self._lost
            self._waiting.put(self._marked)
        self._came += len(line)
        self._waiting.put(line)

    def flush(self) -> None:
        """The thread does."""

    def drain(self, seconds_max: float = EXIT_SECONDS_MAX) -> bool:
        """Waits until everything is written, or for so long. Whether it is."""
        written = threading.Event()
        self._waiting.put(written)
        return written.wait(seconds_max)

    def _run(self) -> None:
        while True:
            taken = [self._waiting.get()]
            with contextlib.suppress(Empty):
                while len(taken) < TOGETHER_MAX:
                    taken.append(self._waiting.get_nowait())
            with contextlib.suppress(Exception):  # nobody is there any more who could be told, and others come
                self._write(taken)
            for each in taken:
                if isinstance(each, str):
                    self._taken += len(each)
                elif isinstance(each, threading.Event):
                    each.set()

    def _write(self, taken: list[str | int | threading.Event]) -> None:
        lines = "".join(map(self._text_of, taken))
        if self._waiting.empty():
            lines += self._text_of(self._lost)  # nothing may come for long
        if lines:
            self._write_now(lines)

    def _text_of(self, waiting: str | int | threading.Event) -> str:
        if isinstance(waiting, str):
            return waiting
        if not isinstance(waiting, int) or waiting <= self._told:
            return ""
        count, self._told = waiting - self._told, waiting
        return self._tell_lost(count)


def write_whole(descriptor: int, text: str, *, encoding: str = "utf-8") -> None:
    """May wait for ever. Not through `sys.stderr`: who waits in there has its lock, and the interpreter, which flushes
    it at its end, aborts if it cannot have that."""
    left = memoryview(text.encode(encoding, "backslashreplace"))
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # whoever gave it to us, or has it as well, does not want to wait
            select.select((), (descriptor,), ())
