"""Frames are the same whichever way their bytes arrive, and a length alone costs nothing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.protocol.frames import BUFFER_BYTES_MIN, GROWTH_FACTOR, Framer, FrameTooLarge, Scratch


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def taken(framer: Framer) -> list[bytes]:
    return [bytes(frame) for frame in iter(framer.next_frame, None)]


def feed(framer: Framer, data: bytes, chunks: list[int]) -> list[bytes]:
    found: list[bytes] = []
    position, turn = 0, 0
    while position < len(data):
        buffer = framer.buffer()
        count = min(len(buffer), len(data) - position, chunks[turn % len(chunks)])
        buffer[:count] = data[position : position + count]
        framer.received(count)
        found += taken(framer)
        position += count
        turn += 1
    return found


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=20),
    chunks=st.lists(st.integers(1, 500), min_size=1, max_size=10),
    scratch=st.integers(8, 600),
)
def test_any_chunking_yields_the_same_frames(bodies: list[bytes], chunks: list[int], scratch: int) -> None:
    framer = Framer(Scratch(scratch), limit_bytes=1000)
    assert feed(framer, framed(*bodies), chunks) == bodies
    assert not framer.mid_frame


@given(bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=20), first=st.integers(0, 5))
def test_frames_can_be_held_while_another_connection_uses_the_scratch(bodies: list[bytes], first: int) -> None:
    scratch = Scratch(4096)
    framer, other = Framer(scratch, limit_bytes=1000), Framer(scratch, limit_bytes=1000)
    data = framed(*bodies)
    framer.buffer()[: len(data)] = data
    framer.received(len(data))
    found: list[bytes] = []
    while len(found) < first and (frame := framer.next_frame()) is not None:
        found.append(bytes(frame))
    framer.hold()
    assert feed(other, framed(b"x" * 900), [4096]) == [b"x" * 900]
    assert found + taken(framer) == bodies


def test_a_long_frame_grows_as_it_arrives() -> None:
    """A client that announces a long frame and sends a little of it holds no more than a few times that little."""
    framer = Framer(Scratch(), limit_bytes=100 << 20)
    assert feed(framer, struct.pack(">i", 100 << 20) + b"ab", [4096]) == []
    assert framer.frame_size == 100 << 20
    while framer.arrived_bytes < 3 << 20:
        room = len(framer.buffer())
        assert framer.arrived_bytes + room <= max(GROWTH_FACTOR * framer.arrived_bytes, BUFFER_BYTES_MIN)
        framer.received(room)


def test_a_long_frame_arrives_whole() -> None:
    body = bytes(range(256)) * 20000
    framer = Framer(Scratch(), limit_bytes=100 << 20)
    assert feed(framer, framed(body, b"next"), [60_000, 7, 100_000]) == [body, b"next"]


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    kept=st.sets(st.integers(0, 29)),
    chunks=st.lists(st.integers(1, 60), min_size=1, max_size=5),
)
def test_buffers_are_used_again_but_never_under_a_view(sizes: list[int], kept: set[int], chunks: list[int]) -> None:
    scratch = Scratch(12)
    framers = [Framer(scratch, limit_bytes=1000), Framer(scratch, limit_bytes=1000)]
    views: list[tuple[bytes, memoryview]] = []
    for number, size in enumerate(sizes):
        body = bytes([number]) * size
        data, framer = framed(body), framers[number % 2]
        while data:
            buffer = framer.buffer()
            count = min(len(buffer), len(data), chunks[number % len(chunks)])
            buffer[:count] = data[:count]
            del buffer
            framer.received(count)
            data = data[count:]
            while (frame := framer.next_frame()) is not None:
                assert bytes(frame) == body
                if number in kept:
                    views.append((body, memoryview(frame)))
    assert all(bytes(view) == body for body, view in views)


def test_a_long_frame_gets_the_buffer_of_the_one_before() -> None:
    framer = Framer(Scratch(), limit_bytes=100 << 20)
    bodies = [b"a" * 900_000, b"b" * 900_100, b"c" * 500_000]
    frames = []
    for body in bodies:
        data = framed(body)
        while data:
            buffer = framer.buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            del buffer
            framer.received(count)
            data = data[count:]
            while (frame := framer.next_frame()) is not None:
                assert frame == body
                frames.append(frame)
    assert frames[0] is frames[1] is frames[2]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1, 0x47455420])
def test_an_absurd_length_is_refused(length: int) -> None:
    framer = Framer(Scratch(), limit_bytes=1000)
    with pytest.raises(FrameTooLarge):
        feed(framer, struct.pack(">i", length), [4])
