"""Plain numbered lines, to be played again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tidemark.pipeline.generators.generated_record import GeneratedRecord

TOPICS = {"recorded": 2}


def records(random: Random, *, rate: int) -> Iterator[GeneratedRecord]:
    number = 0
    while True:
        yield GeneratedRecord(
            topic="recorded", key=f"k{random.randrange(20)}".encode(), value=f"line {number}".encode()
        )
        number += 1
