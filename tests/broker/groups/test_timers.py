from __future__ import annotations

import gc
import weakref

from tidemark.broker.groups.timers import PURGE_MIN, TimerQueue


class Member:
    def wake(self, _now_ms: int) -> None: ...


def test_what_was_cancelled_is_forgotten_before_its_time() -> None:
    timers = TimerQueue()
    for at_ms in range(100_000):
        timers.set(1_000_000 + at_ms, lambda _: None).cancel()
    assert len(timers._heap) <= PURGE_MIN


def test_a_cancelled_alarm_holds_nobody() -> None:
    timers, member = TimerQueue(), Member()
    timers.set(1_000, member.wake).cancel()
    gone = weakref.ref(member)
    del member
    gc.collect()
    assert gone() is None


def test_alarms_go_off_in_their_order_whatever_was_cancelled_between() -> None:
    timers, heard = TimerQueue(), []
    times = [at_ms * 7919 % 1000 for at_ms in range(1000)]
    kept = []
    for at_ms in times:
        timer = timers.set(at_ms, lambda _now, at_ms=at_ms: heard.append(at_ms))  # type: ignore[misc]
        if at_ms % 3:
            timer.cancel()
        else:
            kept.append(at_ms)
    assert timers.next_ms == 0
    list(timers.due(2_000))
    assert heard == sorted(kept)
    assert timers.next_ms is None
