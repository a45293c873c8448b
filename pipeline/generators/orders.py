"""Customers, whose newest record counts, and orders that name them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from tidemark.pipeline.generators.generated_record import GeneratedRecord

TOPICS = {"orders": 2, "customers": 1}
COMPACTED = ("customers",)
CUSTOMERS = 50
COUNTRIES = ("DE", "FR", "IT", "NL", "PL", "SE")


def records(random: Random, *, rate: int) -> Iterator[GeneratedRecord]:
    for number in range(CUSTOMERS):
        yield _customer(random, number)
    yield GeneratedRecord(topic="customers", key=b"c0", value=None)  # a customer who left: the order keeps a null
    number = 0
    while True:
        order = {
            "order_id": number,
            "customer_id": f"c{random.randrange(CUSTOMERS)}",
            "amount": random.randrange(100, 100_000) / 100,
        }
        yield GeneratedRecord(topic="orders", key=str(number).encode(), value=json.dumps(order).encode())
        number += 1


def _customer(random: Random, number: int) -> GeneratedRecord:
    customer = {"name": f"Customer {number}", "country": random.choice(COUNTRIES)}
    return GeneratedRecord(topic="customers", key=f"c{number}".encode(), value=json.dumps(customer).encode())
