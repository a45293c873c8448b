"""Readers that do not read and writers that do not stop: memory stays bounded and others are served."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from harness.batches import batch_of
from harness.broker_process import BrokerProcess
from harness.requests import creatable, create_topics, fetch_fields, metadata, partition_to_fetch, produce
from harness.topic import Topic
from harness.waiting import eventually
from harness.wire import Wire

MB = 1 << 20
READERS = 20
# A JVM takes what it was given; the bound is asked of Tidemark.
GROWTH_MAX = 64 * MB
JVM_GROWTH_MAX = 600 * MB


@pytest.fixture
def loaded(new_broker: Callable[..., BrokerProcess], topic: str) -> Iterator[tuple[BrokerProcess, Wire, Topic]]:
    """A broker of its own with 32 MB in one partition."""
    broker = new_broker()
    with Wire(broker.host, broker.port) as wire:
        (created,) = create_topics(wire, creatable(topic)).values()
        for number in range(32):
            eventually(
                lambda number=number: produce(wire, topic, batch_of(bytes([number]) * 1_000_000)).error_code == 0
            )
        yield broker, wire, Topic(name=topic, id=created.topic_id)


def allowed_growth(broker: BrokerProcess) -> int:
    return GROWTH_MAX if broker.clean_exit_code == 0 else JVM_GROWTH_MAX


def push_until_refused(connection: Wire, data: bytes, *, limit_bytes: int, seconds_max: float) -> int:
    """Sends until the broker has not taken a byte for a while; how many bytes it took."""
    connection.socket.settimeout(1)
    taken = 0
    deadline = time.monotonic() + seconds_max
    rest = memoryview(data)
    with contextlib.suppress(TimeoutError, ConnectionError):
        while taken < limit_bytes and time.monotonic() < deadline:
            sent = connection.socket.send(rest)
            taken += sent
            rest = rest[sent:] or memoryview(data)
    return taken


def slowest_answer(wire: Wire, *, rounds: int) -> float:
    slowest = 0.0
    for _ in range(rounds):
        started = time.monotonic()
        assert metadata(wire).brokers
        slowest = max(slowest, time.monotonic() - started)
    return slowest


def test_slow_readers_of_large_fetches_bound_memory(loaded: tuple[BrokerProcess, Wire, Topic]) -> None:
    broker, wire, topic = loaded
    before = broker.rss_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(READERS):
            reader = stack.enter_context(Wire(broker.host, broker.port, receive_buffer=4096))
            asked = fetch_fields(topic.id, partition_to_fetch(partition_max_bytes=32 * MB), max_bytes=32 * MB)
            for _ in range(10):
                reader.ask("Fetch", 17, **asked)
        assert slowest_answer(wire, rounds=50) < 2
        assert broker.rss_bytes - before < allowed_growth(broker)
    assert slowest_answer(wire, rounds=5) < 2


def test_flood_of_requests_without_reading_bounds_memory(loaded: tuple[BrokerProcess, Wire, Topic]) -> None:
    broker, wire, topic = loaded
    before = broker.rss_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            flooder = stack.enter_context(Wire(broker.host, broker.port, receive_buffer=4096))
            # A megabyte asked for with each of these few bytes.
            _, body = flooder.encode("Fetch", 17, **fetch_fields(topic.id, partition_to_fetch(), max_wait_ms=0))
            burst = (struct.pack(">i", len(body)) + body) * 1000
            push_until_refused(flooder, burst, limit_bytes=64 * MB, seconds_max=5)
        assert slowest_answer(wire, rounds=50) < 2
        assert broker.rss_bytes - before < allowed_growth(broker)


def test_flood_of_small_requests_is_slowed_not_swallowed(loaded: tuple[BrokerProcess, Wire, Topic]) -> None:
    """Answers nobody reads fill the sockets; then the broker must stop taking requests rather than hold them all."""
    broker, wire, _ = loaded
    before = broker.rss_bytes
    with Wire(broker.host, broker.port, receive_buffer=4096) as flooder:
        _, body = flooder.encode("Metadata", 12, topics=None, allow_auto_topic_creation=False)
        burst = (struct.pack(">i", len(body)) + body) * 1000
        taken = push_until_refused(flooder, burst, limit_bytes=256 * MB, seconds_max=10)
        assert taken < 256 * MB
        assert broker.rss_bytes - before < allowed_growth(broker)
        assert slowest_answer(wire, rounds=5) < 2


def test_many_half_sent_large_frames_bound_memory(loaded: tuple[BrokerProcess, Wire, Topic]) -> None:
    """A length prefix is a claim, not a reason to allocate: sixty claims of 100 MB cost little."""
    broker, wire, _ = loaded
    # Apache Kafka does allocate what is claimed: six such claims and a heap of 512 MB answers nobody any more.
    claims = 60 if broker.clean_exit_code == 0 else 2
    before = broker.rss_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(claims):
            claiming = stack.enter_context(Wire(broker.host, broker.port))
            claiming.send(struct.pack(">i", 100_000_000) + bytes(1000))
        assert slowest_answer(wire, rounds=20) < 2
        assert broker.rss_bytes - before < allowed_growth(broker)


def test_five_hundred_idle_connections_cost_little(loaded: tuple[BrokerProcess, Wire, Topic]) -> None:
    broker, wire, _ = loaded
    before = broker.rss_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=20))
        assert slowest_answer(wire, rounds=20) < 2
        assert broker.rss_bytes - before < allowed_growth(broker)


def test_connections_over_the_limit_per_address_are_closed(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker({"max.connections.per.ip": "5"})
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(Wire(broker.host, broker.port)) for _ in range(5)]
        for connection in held:
            assert metadata(connection).brokers
        over = stack.enter_context(Wire(broker.host, broker.port))
        assert over.is_closed_by_broker()
        held[0].close()

        def accepted_again() -> bool:
            with Wire(broker.host, broker.port) as again, contextlib.suppress(Exception):
                return bool(metadata(again).brokers)
            return False

        eventually(accepted_again, what="a place is free again")
