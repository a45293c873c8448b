"""Topics of a benchmark: made, checked and taken away again, through the ordinary admin client."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.brokers import Running

TIMEOUT_S = 60.0
ATTEMPT_S = 5.0  # now and then an answer does not come at all, and a new request is answered at once


@cache
def _admin(bootstrap: str) -> AdminClient:
    """One per broker, never closed: closing one while its last answer is still in flight blocks now and then."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


@contextmanager
def topic(
    broker: Running, name: str, *, partitions: int, config: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """A fresh topic, deleted at the end; returns only when its files are gone, so that rounds do not overlap."""
    admin = _admin(broker.bootstrap)
    request = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
    admin.create_topics([request])[name].result(TIMEOUT_S)
    _wait_for_leaders(broker, name, partitions=partitions)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(TIMEOUT_S)
        wait_for_files_to_go(broker.data, name)


def standing_topic(broker: Running, name: str, *, partitions: int) -> str:
    """One that stays for the life of the broker: a load that leaves nothing in it need not wait for its deletion."""
    admin = _admin(broker.bootstrap)
    request = NewTopic(name, num_partitions=partitions, replication_factor=1)
    try:
        admin.create_topics([request])[name].result(TIMEOUT_S)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    _wait_for_leaders(broker, name, partitions=partitions)
    return name


def _wait_for_leaders(broker: Running, name: str, *, partitions: int) -> None:
    """Until every partition answers: metadata alone names leaders a moment before they lead."""
    begun = renewed = time.monotonic()
    while True:
        try:
            _end_offsets(_admin(broker.bootstrap), name, partitions=partitions, timeout_s=ATTEMPT_S)
            return
        except KafkaException as problem:
            now = time.monotonic()
            if now - begun > TIMEOUT_S:
                problem.add_note(f"{broker.name}, {name}")
                raise
            if now - renewed > ATTEMPT_S:  # a client may go on believing that there is no such topic: ask with another
                renewed = now
                _admin.cache_clear()
            time.sleep(0.05)


def wait_for_files_to_go(data: Path, name: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while any(data.glob(f"{name}-*")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the files of deleted topic {name} are still there after {TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def count_records(broker: Running, name: str, *, partitions: int) -> int:
    """What the broker says it holds: the check that a load without delivery reports was delivered."""
    admin = _admin(broker.bootstrap)
    return sum(_end_offsets(admin, name, partitions=partitions, timeout_s=TIMEOUT_S))


def _end_offsets(admin: AdminClient, name: str, *, partitions: int, timeout_s: float) -> list[int]:
    wanted = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}
    answers = admin.list_offsets(wanted, request_timeout=timeout_s)
    return [int(future.result(2 * timeout_s).offset) for future in answers.values()]
