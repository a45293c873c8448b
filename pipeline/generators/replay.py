"""Plain numbered lines, to be played again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tidemark.pipeline.generators.made import Made

TOPICS = {"recorded": 2}


def records(random: Random, *, rate: int) -> Iterator[Made]:
    number = 0
    while True:
        yield Made(topic="recorded", key=f"k{random.randrange(20)}".encode(), value=f"line {number}".encode())
        number += 1
