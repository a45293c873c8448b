"""How late the event loop is, measured all the time; and what held it up, when that was long.

A timer falls due four times a second. How late it fires is how long any request that came in at that moment has waited.
In a broker's own process an alarm clock stands beside it: the signal arrives in the middle of whatever runs too long,
and so tells what that is, without a thread that would have to wake up to look.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

from tidemark.broker.core.histogram import Histogram

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 0.25  # more often would show in what an idle broker costs
LATE_SECONDS: Final = 0.1  # a delay that is logged
LOG_EVERY_SECONDS: Final = 10.0
FRAMES_SHOWN_MAX: Final = 4


class LoopDelay:
    """`last_seconds`, `longest_seconds` and `late_count` are for measurements."""

    def __init__(self, *, alarm: Alarm | None = None) -> None:
        self.last_seconds = 0.0
        self.longest_seconds = 0.0  # since the start, or since it was reset
        self.late_count = 0
        self.delays = Histogram()
        self._alarm = alarm
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._logged_at = float("-inf")
        self._unlogged = 0

    def start(self) -> None:
        self._due = self._loop.time() + PERIOD_SECONDS
        self._timer = self._loop.call_at(self._due, self._tick)
        if self._alarm is not None:
            self._alarm.ring_in(PERIOD_SECONDS + LATE_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._alarm is not None:
            self._alarm.stop()

    def _tick(self) -> None:
        now = self._loop.time()
        late = self.last_seconds = now - self._due
        self.delays.observe(late if late > 0 else 0.0)
        if late > self.longest_seconds:
            self.longest_seconds = late
        if late >= LATE_SECONDS:
            self._is_late(late, now)
        self.start()

    def _is_late(self, late: float, now: float) -> None:
        self.late_count += 1
        what = "" if self._alarm is None else self._alarm.take()
        if now - self._logged_at < LOG_EVERY_SECONDS:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last message)" if self._unlogged else ""
        # Without an alarm (a broker embedded in another program has none) there is nothing to be done about it.
        level = logging.WARNING if what else logging.INFO
        log.log(
            level, "the event loop was held up for %.0f ms%s: %s", late * 1000, more, what or "by what is not known"
        )
        self._logged_at, self._unlogged = now, 0


class Alarm:
    """Rings in the middle of what runs, and remembers what that was. Only the main thread of a process has one."""

    def __init__(self) -> None:
        self._what = ""

    @classmethod
    def of_this_process(cls) -> Alarm | None:
        """None where the system has none, or other code uses it."""
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return None
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            return None
        alarm = cls()
        signal.signal(signal.SIGALRM, alarm._ring)
        return alarm

    def ring_in(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def take(self) -> str:
        what, self._what = self._what, ""
        return what

    def _ring(self, _signal: int, frame: FrameType | None) -> None:
        self._what = describe(frame)


def describe(frame: FrameType | None) -> str:
    """What runs: the request, if it is one, and the innermost functions of ours."""
    frames = list(_outwards(frame))
    request = next((found for each in frames if (found := _request(each))), "")
    ours = [each for each in frames if "tidemark" in each.f_globals.get("__name__", "")] or frames
    places = [
        f"{each.f_globals.get('__name__', '?').removeprefix('tidemark.')}.{each.f_code.co_name}:{each.f_lineno}"
        for each in ours[:FRAMES_SHOWN_MAX]
    ]
    return request + " < ".join(places)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _request(frame: FrameType) -> str:
    """Of the dispatcher's frames, which name what they work on."""
    bound, connection = frame.f_locals.get("bound"), frame.f_locals.get("connection")
    if bound is None or connection is None or not hasattr(bound, "version"):
        return ""
    return f"{bound.name} v{bound.version} from {connection.peer} (client {connection.client_id!r}), "
