"""Damaged and hostile bytes: a value or a DecodeError comes out, nothing else, and at no great cost."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.protocol.apis import apis
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.messages.produce import ProduceRequest
from tidemark.protocol.schema import DecodeError, codec

Decode = Callable[[memoryview], Any]
HUGE = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff",
    b"\x80\x00\x00\x00",
    b"\x00\xff\xff\xff",
)
KEYS = sorted(apis())


def survive(decode: Decode, data: bytes) -> None:
    with suppress(DecodeError):
        decode(memoryview(data))


def test_a_truncated_message_is_refused_at_every_byte(
    message_class: type[Any], each_version: Callable[..., None], make_message: Callable[..., Any]
) -> None:
    def check(version: int) -> None:
        out = bytearray()
        codec(message_class, version).encode(make_message(message_class, version, 1), out)
        whole = memoryview(bytes(out))
        decode = codec(message_class, version).decode
        steps = range(len(whole)) if len(whole) < 600 else sorted(random.Random(0).sample(range(len(whole)), 600))
        for size in steps:
            with pytest.raises(DecodeError):
                decode(whole[:size])

    each_version(check)


def test_flipped_bits_and_huge_lengths_do_no_harm(
    message_class: type[Any], each_version: Callable[..., None], make_message: Callable[..., Any]
) -> None:
    def check(version: int) -> None:
        rng = random.Random(f"{message_class.__name__} {version}")
        decode = codec(message_class, version).decode
        out = bytearray()
        codec(message_class, version).encode(make_message(message_class, version, 2), out)
        for _ in range(60):
            damaged = bytearray(out)
            for _ in range(rng.randint(1, 4)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            survive(decode, bytes(damaged))
        for _ in range(30):
            where = rng.randrange(len(out) + 1)
            huge = rng.choice(HUGE)
            survive(decode, bytes(out[:where] + huge + out[where:]))
            survive(decode, bytes(out[:where] + huge + out[where + len(huge) :]))

    each_version(check)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(KEYS), st.booleans(), st.integers(0, 20), st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(key: int, request: bool, step: int, data: bytes) -> None:
    entry = apis()[key]
    version = entry.versions.first + step % (entry.versions.last - entry.versions.first + 1)
    survive(codec(entry.request if request else entry.response, version).decode, data)


@pytest.mark.parametrize("head", HUGE)
def test_a_huge_count_costs_no_memory(head: bytes) -> None:
    for version in (1, 12):
        decode = codec(MetadataRequest, version).decode
        survive(decode, head)
        tracemalloc.start()
        survive(decode, head + bytes(1000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000


def test_a_frame_of_tiny_elements_is_bounded() -> None:
    # Three bytes make a topic without partitions: a large frame could ask for a hundred times its size in objects.
    count = (1 << 20) + 1
    head = (
        b"\0"
        + b"\0\1"
        + b"\0\0\0\0"
        + bytes([(count + 1) & 0x7F | 0x80, (count + 1) >> 7 & 0x7F | 0x80, (count + 1) >> 14])
    )
    with pytest.raises(DecodeError, match="more than 1000000 elements"):
        codec(ProduceRequest, 9).decode(memoryview(head + b"\1\1\0" * count + b"\0"))


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="utf-8"):
        codec(MetadataRequest, 0).decode(memoryview(b"\0\0\0\1" + b"\0\2\xff\xfe"))
