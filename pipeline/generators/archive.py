"""Records of several topics, of any bytes, with headers, nulls and tombstones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tidemark.pipeline.generators.generated_record import GeneratedRecord

TOPICS = {"archive.invoices": 2, "archive.shipments": 1, "archive.events": 1}


def records(random: Random, *, rate: int) -> Iterator[GeneratedRecord]:
    topics = list(TOPICS)
    number = 0
    while True:
        key = None if random.randrange(5) == 0 else f"k{random.randrange(100)}".encode()
        value = None if random.randrange(20) == 0 else random.randbytes(random.randrange(1, 200))
        headers = (("number", str(number).encode()), ("source", b"generator")) if random.randrange(2) else ()
        yield GeneratedRecord(topic=random.choice(topics), key=key, value=value, headers=headers)
        number += 1
