"""kcat, an older librdkafka than confluent-kafka's, as people use it from a shell."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic

Kcat = Callable[..., bytes]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MANY = 200_000


def lines(*values: object) -> bytes:
    return b"".join(f"{value}\n".encode() for value in values)


def test_metadata_listing(kcat: Kcat, make_topic: Callable[..., str], broker: BrokerProcess) -> None:
    topic = make_topic(partitions=3)
    listed = json.loads(kcat("-L", "-J"))
    assert [(node["id"], node["name"]) for node in listed["brokers"]] == [(0, broker.bootstrap)]
    (told,) = [entry for entry in listed["topics"] if entry["topic"] == topic]
    assert [(p["partition"], p["leader"], p["isrs"]) for p in told["partitions"]] == [
        (i, 0, [{"id": 0}]) for i in range(3)
    ]
    assert topic.encode() in kcat("-L", "-t", topic)


def test_unknown_topic_is_a_clear_error(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    # kcat asks for creation even when it only lists, so the broker is told not to.
    broker = new_broker({"auto.create.topics.enable": "false"})
    listing = ["kcat", "-b", broker.bootstrap, "-L", "-t", topic]
    assert b"Unknown topic or partition" in subprocess.run(listing, capture_output=True, timeout=60, check=True).stdout
    reading = ["kcat", "-b", broker.bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-X",
               "topic.metadata.propagation.max.ms=100"]  # fmt: skip
    refused = subprocess.run(reading, capture_output=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert b"Unknown" in refused.stderr


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kcat: Kcat, made: str, acks: str) -> None:
    sent = lines(*range(1000))
    kcat("-P", "-t", made, "-p", "0", "-X", f"acks={acks}", stdin=sent)
    assert kcat("-C", "-t", made, "-p", "0", "-o", "beginning", "-c", "1000", "-q") == sent


@pytest.mark.parametrize("codec", CODECS)
def test_codec_passes_through(kcat: Kcat, made: str, codec: str) -> None:
    sent = lines(*(f"compressible {'x' * 100} {number}" for number in range(2000)))
    kcat("-P", "-t", made, "-p", "0", "-z", codec, stdin=sent)
    assert kcat("-C", "-t", made, "-p", "0", "-o", "beginning", "-e", "-q") == sent


def test_idempotence(kcat: Kcat, made: str) -> None:
    sent = lines(*range(20_000))
    kcat("-P", "-t", made, "-p", "0", "-X", "enable.idempotence=true", stdin=sent)
    assert kcat("-C", "-t", made, "-p", "0", "-o", "beginning", "-e", "-q") == sent


def read_json(kcat: Kcat, topic: str, *options: str) -> list[dict[str, object]]:
    out = kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J", *options)
    return [json.loads(line) for line in out.splitlines()]


def test_keys_headers_and_nulls(kcat: Kcat, made: str) -> None:
    kcat("-P", "-t", made, "-p", "0", "-K", ":", "-Z", "-H", "a=1", "-H", "b=two", stdin=b"k:v\nk:\n:v\n:\n")
    got = read_json(kcat, made)
    assert [(record["key"], record["payload"]) for record in got] == [
        ("k", "v"),
        ("k", None),
        (None, "v"),
        (None, None),
    ]
    assert all(record["headers"] == ["a", "1", "b", "two"] for record in got)
    assert [record["offset"] for record in got] == [0, 1, 2, 3]


def test_tombstone_in_a_compacted_topic(kcat: Kcat, make_topic: Callable[..., str]) -> None:
    topic = make_topic(cleanup_policy="compact")
    kcat("-P", "-t", topic, "-p", "0", "-K", ":", "-Z", stdin=b"k:one\nk:\n")
    assert [(record["key"], record["payload"]) for record in read_json(kcat, topic)] == [("k", "one"), ("k", None)]
    refused = kcat("-P", "-t", topic, "-p", "0", stdin=b"no key\n", fails=True)
    assert b"failed" in refused.lower()


def test_record_of_one_megabyte(kcat: Kcat, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes="4000000")
    sent = b"x" * (1 << 20) + b"\n"
    kcat("-P", "-t", topic, "-p", "0", "-X", "message.max.bytes=4000000", stdin=sent * 3)
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "3", "-q") == sent * 3


def test_record_too_large_is_a_clear_error(kcat: Kcat, made: str) -> None:
    refused = kcat("-P", "-t", made, "-p", "0", "-X", "message.max.bytes=4000000", stdin=b"x" * 1_500_000, fails=True)
    assert b"Message size too large" in refused


def test_offsets(kcat: Kcat, made: str) -> None:
    kcat("-P", "-t", made, "-p", "0", stdin=lines(*range(100)))
    for offset, expected in (("beginning", 0), ("42", 42), ("-5", 95)):
        assert kcat("-C", "-t", made, "-p", "0", "-o", offset, "-c", "1", "-q") == lines(expected)
    assert kcat("-C", "-t", made, "-p", "0", "-o", "end", "-e", "-q") == b""


def test_timestamps(kcat: Kcat, made: str) -> None:
    before = int(time.time() * 1000)
    kcat("-P", "-t", made, "-p", "0", stdin=b"first\n")
    (first,) = read_json(kcat, made)
    assert before <= int(str(first["ts"])) <= int(time.time() * 1000)
    kcat("-P", "-t", made, "-p", "0", stdin=b"second\n")
    second = read_json(kcat, made)[1]
    assert kcat("-C", "-t", made, "-p", "0", "-o", f"s@{second['ts']}", "-e", "-q") == b"second\n"
    # Query mode: the offset for a timestamp.
    assert b"offset 1" in kcat("-Q", "-t", f"{made}:0:{second['ts']}")
    assert b"offset 0" in kcat("-Q", "-t", f"{made}:0:-2")
    assert b"offset 2" in kcat("-Q", "-t", f"{made}:0:-1")


def test_empty_topic(kcat: Kcat, made: str) -> None:
    assert kcat("-C", "-t", made, "-p", "0", "-o", "beginning", "-e", "-q") == b""


def test_producing_creates_the_topic(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, stdin=b"a\n")
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == b"a\n"


def test_large_topic(kcat: Kcat, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=2)
    for partition in ("0", "1"):
        sent = lines(*range(MANY // 2))
        kcat("-P", "-t", topic, "-p", partition, "-X", "queue.buffering.max.messages=1000000", stdin=sent)
        assert kcat("-C", "-t", topic, "-p", partition, "-o", "beginning", "-e", "-q") == sent


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_restart_under_a_running_producer_and_consumer(
    new_broker: Callable[..., BrokerProcess], topic: str, clean: bool
) -> None:
    broker = new_broker()
    create_topic(broker.bootstrap, topic)
    quick = ["-X", "reconnect.backoff.ms=20", "-X", "reconnect.backoff.max.ms=200", "-X", "retry.backoff.ms=50"]
    # -E: without it kcat gives up as soon as the only broker is away.
    producing = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap, "-P", "-E", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", *quick],
        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert producing.stdin is not None
    half = 2_000
    producing.stdin.write(lines(*range(half)))
    producing.stdin.flush()
    consuming = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap, "-C", "-E", "-t", topic, "-p", "0", "-o", "beginning", "-u", "-q",
         "-c", str(half * 2), *quick],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
    )  # fmt: skip
    assert consuming.stdout is not None
    try:
        seen = consuming.stdout.readline()
        broker.restart(clean=clean)
        producing.stdin.write(lines(*range(half, half * 2)))
        producing.stdin.close()
        assert producing.wait(60) == 0
        rest, _ = consuming.communicate(timeout=60)
        assert seen + rest == lines(*range(half * 2))
    finally:
        for process in (producing, consuming):
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
