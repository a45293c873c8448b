"""Payments, some of which break rules, and some of which are no JSON at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from tidemark.pipeline.generators.generated_record import GeneratedRecord

TOPICS = {"payments": 2}


def records(random: Random, *, rate: int) -> Iterator[GeneratedRecord]:
    number = 0
    while True:
        payment = {
            "payment_id": f"p{number}",
            "amount": random.randrange(-500, 10_000) / 100,
            "currency": random.choice(("EUR", "EUR", "USD", "XXX", None)),
        }
        text = json.dumps(payment)
        if random.randrange(25) == 0:
            text = text[: len(text) // 2]
        yield GeneratedRecord(topic="payments", key=f"p{number}".encode(), value=text.encode())
        number += 1
