"""Work on all replicas of a node, of which there may be tens of thousands: clients have their turn in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

from tidemark.broker.core.time_slice import TimeSlice

CHUNK: Final = 50  # replicas between two looks at the clock

R = TypeVar("R")


async def in_chunks(replicas: Iterable[R], work: Callable[[Sequence[R]], None]) -> None:
    """Some of them may have got another role by the time that they come to it."""
    remaining, time_slice = iter(replicas), TimeSlice()
    while chunk := list(islice(remaining, CHUNK)):
        work(chunk)
        await time_slice.pause()
