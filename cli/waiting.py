"""Waiting for a cluster to get somewhere, by asking again and again: it tells no client when it does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(find: Callable[[], T | None], *, timeout_s: float, pause_s: float) -> T | None:
    """The first thing that `find` returns; None if it has found nothing when the time is over."""
    deadline = time.monotonic() + timeout_s
    while (found := find()) is None and time.monotonic() < deadline:
        time.sleep(pause_s)
    return found
