"""From a generator to a cluster, at a set rate."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import ModuleType

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.cluster import ClusterAdmin, client_settings
from tidemark.pipeline.generators import archive, clickstream, orders, quality, replay
from tidemark.pipeline.generators.generated_record import GeneratedRecord

GENERATORS: Mapping[str, ModuleType] = {
    "archive": archive,
    "clickstream": clickstream,
    "orders": orders,
    "quality": quality,
    "replay": replay,
}


def generate(name: str, *, bootstrap: str, rate: int, count: int | None, seed: int) -> int:
    """Creates the topics that are missing, then produces; the number of records produced."""
    from confluent_kafka import Producer

    if name not in GENERATORS:
        message = f"There is no generator {name!r}; there are {', '.join(GENERATORS)}."
        raise CommandFailed(message, code=ExitCode.USAGE)
    generator = GENERATORS[name]
    cluster = ClusterAdmin(bootstrap, {})
    for topic, partitions in generator.TOPICS.items():
        config = {"cleanup.policy": "compact"} if topic in getattr(generator, "COMPACTED", ()) else {}
        cluster.create_topic(topic, partitions=partitions, config=config)
    how_long = "until Ctrl-C" if count is None else f"{count:,} in all"
    print(f"{', '.join(generator.TOPICS)} at {bootstrap}: {rate:,} records a second, {how_long}.", file=sys.stderr)
    made: Iterator[GeneratedRecord] = generator.records(Random(seed), rate=rate)
    producer = Producer({**client_settings(bootstrap, {}), "partitioner": "murmur2_random", "linger.ms": 5})
    return _produce(producer, itertools.islice(made, count), rate=rate, sleep=time.sleep)


def _produce(producer: object, made: Iterator[GeneratedRecord], *, rate: int, sleep: Callable[[float], None]) -> int:
    from confluent_kafka import Producer

    assert isinstance(producer, Producer)
    began = time.monotonic()
    sent = 0
    for each in made:
        while True:
            try:
                producer.produce(each.topic, each.value, each.key, headers=list(each.headers))
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
        ahead = sent / rate - (time.monotonic() - began)
        if ahead > 0.02:
            producer.poll(0)
            sleep(ahead)
    if producer.flush(60):
        raise CommandFailed("Not all records were acknowledged within 60 s.")
    return sent
