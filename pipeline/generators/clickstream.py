"""Clicks of people who come, look at some pages and go; now and then an event arrives twice, or late."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from random import Random

from tidemark.pipeline.generators.generated_record import GeneratedRecord

TOPICS = {"clicks": 2}
PAGES = ("/", "/search", "/basket", "/checkout", "/help", "/product/17", "/product/42", "/product/99")
START = datetime.datetime(2030, 1, 31, 12, tzinfo=datetime.UTC)
TWICE_IN = 50
LATE_IN = 40


def records(random: Random, *, rate: int) -> Iterator[GeneratedRecord]:
    """Event time runs as fast as the rate says, from a fixed moment: reruns give the same windows."""
    number = 0
    while True:
        moment = START + datetime.timedelta(seconds=number / rate)
        if random.randrange(LATE_IN) == 0:
            moment -= datetime.timedelta(seconds=random.randrange(60))
        user = f"user-{random.randrange(200)}"
        event = {
            "event_id": f"e{number}",
            "user": user,
            "page": random.choice(PAGES),
            "event_time": moment.isoformat(timespec="milliseconds"),
        }
        made = GeneratedRecord(topic="clicks", key=user.encode(), value=json.dumps(event).encode())
        yield made
        if random.randrange(TWICE_IN) == 0:
            yield made
        number += 1
