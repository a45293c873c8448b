"""What is not the protocol ends its own connection and nothing else."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable

import psutil
import pytest
from harness.batches import batch_of
from harness.broker_process import BrokerProcess
from harness.requests import end_offset, fetch_fields, metadata, partition_to_fetch, produce
from harness.topic import Topic
from harness.waiting import eventually
from harness.wire import Closed, Wire, header

API_VERSIONS, METADATA, FETCH, PRODUCE = 18, 3, 1, 0


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def tls_hello() -> bytes:
    return bytes.fromhex("1603010200010001fc0303") + bytes(range(256)) + bytes(245)


NOT_KAFKA = {
    "garbage": b"\x99\xf3\x12 this is nothing at all",
    "an HTTP request": b"GET /topics HTTP/1.1\r\nHost: localhost:9092\r\nAccept: */*\r\n\r\n",
    "a TLS hello": tls_hello(),
    "a giant length": struct.pack(">i", 0x7FFFFFFF) + bytes(64),
    "a length one over the limit": struct.pack(">i", 104_857_601),
    "a negative length": struct.pack(">i", -1),
    "an empty frame": struct.pack(">i", 0),
    "a frame too short for a header": frame(b"abc"),
    "an unknown API key": frame(header(999, 0, 1)),
    "a negative API key": frame(header(-5, 0, 1)),
    "an API of the inter-broker kind": frame(header(4, 0, 1)),
    "a version above ours": frame(header(METADATA, 99, 1)),
    "a negative version": frame(header(METADATA, -1, 1)),
    "a version below ours": frame(header(FETCH, 3, 1)),
    "a produce version that only exists to be listed": frame(header(PRODUCE, 2, 1)),
    "a body cut short": frame(header(METADATA, 1, 1) + b"\0\0\0\5"),
    "an array that cannot fit": frame(header(METADATA, 1, 1) + b"\x7f\xff\xff\xff"),
    "a client id longer than the frame": frame(struct.pack(">hhih", METADATA, 1, 1, 500) + b"abc"),
}


@pytest.mark.parametrize("data", NOT_KAFKA.values(), ids=NOT_KAFKA.keys())
def test_bad_input_closes_its_connection_without_an_answer(
    connect: Callable[..., Wire], wire: Wire, data: bytes
) -> None:
    bad = connect()
    bad.send(data)
    assert bad.is_closed_by_broker()
    assert metadata(wire).brokers, "another client's connection lives on"


def test_unknown_api_versions_version_is_answered_in_the_oldest_form(wire: Wire) -> None:
    # KIP-511: header v0, error 35, and the one entry a client needs to try again: its own range.
    wire.send_frame(header(API_VERSIONS, 99, 7) + b"\0")
    answer = wire.receive_frame()
    assert answer == struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4)


def test_client_continues_on_the_same_connection_after_an_unknown_api_versions_version(wire: Wire) -> None:
    wire.send_frame(header(API_VERSIONS, 99, 7) + b"\0")
    wire.receive_frame()
    assert wire.call("ApiVersions", 0).error_code == 0


def test_unknown_tagged_fields_are_passed_over(wire: Wire) -> None:
    wire.send_frame(header(API_VERSIONS, 3, 9) + b"\x01\x63\x02hi" + b"\x04a-b" + b"\x021" + b"\x01\x64\x01z")
    answer = wire.receive_frame()
    assert struct.unpack_from(">ih", answer) == (9, 0)


@pytest.mark.parametrize("software", [b"\x01", b"\x05a  b"], ids=["empty", "with blanks"])
def test_api_versions_refuses_a_client_name_of_odd_characters(wire: Wire, software: bytes) -> None:
    wire.send_frame(header(API_VERSIONS, 3, 9) + b"\0" + software + b"\x021" + b"\0")
    assert struct.unpack_from(">ih", wire.receive_frame()) == (9, 42)


def test_null_client_id_is_fine(wire: Wire) -> None:
    wire.send_frame(header(METADATA, 1, 5, client_id=None) + b"\0\0\0\0")
    assert struct.unpack_from(">i", wire.receive_frame()) == (5,)


def test_request_sent_byte_by_byte_is_answered(wire: Wire) -> None:
    _, body = wire.encode("Metadata", 12, correlation_id=77, topics=[], allow_auto_topic_creation=False)
    for byte in frame(body):
        wire.send(bytes([byte]))
    assert struct.unpack_from(">i", wire.receive_frame()) == (77,)


def test_pipelined_requests_are_answered_in_order(wire: Wire, made: Topic) -> None:
    burst = bytearray()
    for number in range(200):
        if number % 2:
            _, body = wire.encode("ApiVersions", 0, correlation_id=number)
        else:
            _, body = wire.encode(
                "Produce", 9, correlation_id=number, transactional_id=None, acks=-1, timeout_ms=1000,
                topic_data=[{"name": made.name, "partition_data": [{"index": 0, "records": batch_of(b"%d" % number)}]}],
            )  # fmt: skip
        burst += frame(body)
    wire.send(bytes(burst))
    answered = [struct.unpack_from(">i", wire.receive_frame())[0] for _ in range(200)]
    assert answered == list(range(200))


def test_long_poll_holds_back_the_answers_behind_it(wire: Wire, made: Topic, connect: Callable[..., Wire]) -> None:
    """Answers leave in request order, so what follows a waiting fetch waits with it."""
    _, first = wire.encode(
        "Fetch", 17, correlation_id=1, **fetch_fields(made.id, partition_to_fetch(), max_wait_ms=15_000)
    )
    _, second = wire.encode("ApiVersions", 0, correlation_id=2)
    wire.send(frame(first) + frame(second))
    produce(connect(), made.name, batch_of(b"wake"))
    assert [struct.unpack_from(">i", wire.receive_frame())[0] for _ in range(2)] == [1, 2]


def test_half_a_frame_then_silence_is_closed_when_idle_for_too_long(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker({"connections.max.idle.ms": "1000"})
    with Wire(broker.host, broker.port) as half, Wire(broker.host, broker.port) as quiet:
        half.send(struct.pack(">i", 1000) + b"half")
        started = time.monotonic()
        assert half.is_closed_by_broker()
        assert quiet.is_closed_by_broker()
        assert time.monotonic() - started < 10


def test_half_a_frame_then_the_end_disturbs_nobody(connect: Callable[..., Wire], wire: Wire) -> None:
    half = connect()
    half.send(struct.pack(">i", 1000) + b"half")
    half.close()
    assert metadata(wire).brokers


def test_producer_that_half_closes_still_gets_its_answer_or_a_clean_end(
    wire: Wire, connect: Callable[..., Wire], made: Topic
) -> None:
    closing = connect()
    _, body = closing.encode(
        "Produce", 9, transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[{"name": made.name, "partition_data": [{"index": 0, "records": batch_of(b"last words")}]}],
    )  # fmt: skip
    closing.send(frame(body))
    closing.socket.shutdown(socket.SHUT_WR)
    with contextlib.suppress(Closed):
        closing.receive_frame()
    eventually(lambda: end_offset(wire, made.name) == 1, what="what was accepted is written")


def open_files(pid: int) -> int:
    return int(psutil.Process(pid).num_fds())


def test_ten_thousand_bad_connections_leave_memory_flat_and_others_undisturbed(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker()
    kinds = list(NOT_KAFKA.values())

    def bad_connections(count: int) -> None:
        for number in range(count):
            with socket.create_connection((broker.host, broker.port), timeout=20) as bad:
                bad.sendall(kinds[number % len(kinds)])
                with contextlib.suppress(ConnectionResetError):
                    assert bad.recv(1) == b""

    with Wire(broker.host, broker.port) as other:
        bad_connections(1_000)
        files_before, rss_before = open_files(broker.pid), broker.rss_bytes
        slowest = 0.0
        for _ in range(10):
            bad_connections(1_000)
            started = time.monotonic()
            assert metadata(other).brokers
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 1
        eventually(lambda: open_files(broker.pid) <= files_before + 5, what="sockets closed")
        # A JVM grows its heap as it likes; flat is asked of Tidemark.
        allowed = 8 << 20 if broker.clean_exit_code == 0 else 256 << 20
        assert broker.rss_bytes - rss_before < allowed


def test_bad_input_is_logged_with_where_it_came_from(
    new_broker: Callable[..., BrokerProcess], is_control: bool
) -> None:
    broker = new_broker()
    for data in NOT_KAFKA.values():
        with Wire(broker.host, broker.port) as bad:
            port = bad.socket.getsockname()[1]
            bad.send(data)
            assert bad.is_closed_by_broker()
            # Apache Kafka logs some of these at levels that are off by default.
            if not is_control:
                eventually(lambda port=port: f"127.0.0.1:{port}" in broker.log, what=f"a log line about {data[:20]!r}")
