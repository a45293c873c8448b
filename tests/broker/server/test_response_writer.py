"""What leaves a connection."""

import asyncio
import logging
import socket
from itertools import pairwise
from typing import Any

import pytest

from tidemark.broker.server.response_writer import TURN_BYTES_MAX, ResponseWriter
from tidemark.environment import new_executor


async def test_answers_to_a_client_that_is_gone_are_dropped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    readers = new_executor(1, name="readers")
    writer = ResponseWriter(transport, loop, lambda: None, readers)
    theirs.close()
    with caplog.at_level(logging.WARNING):
        for _ in range(50):  # all in one turn of the loop, as when many answers have waited for one event
            writer.send([b"answer"])
            writer.send([b"in", b"parts"])
        await asyncio.sleep(0)
    assert not caplog.records
    transport.abort()
    readers.shutdown()


class Tireless(asyncio.Protocol):
    """Writes on whenever it may, as a connection does."""

    writer: ResponseWriter

    def resume_writing(self) -> None:
        self.writer.flush()


async def test_a_long_answer_arrives_whole_and_in_order_however_slowly_it_is_read() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, protocol = await loop.create_connection(Tireless, sock=ours)
    readers = new_executor(1, name="readers")
    writer = protocol.writer = ResponseWriter(transport, loop, lambda: writer.flush(), readers)
    answers = [b"first", bytes(range(256)) * 40_000, b"then", bytes(range(255)) * 20_000, b"last"]
    for answer in answers:
        writer.send([answer])
    assert writer.is_blocked
    expected = b"".join(answers)
    got = bytearray()
    while len(got) < len(expected):
        got += await asyncio.wait_for(loop.sock_recv(theirs, 1 << 16), 10)
    assert got == expected
    assert not writer.is_blocked
    transport.abort()
    theirs.close()
    readers.shutdown()


class Swallow(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock})
        self.taken = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.taken += len(data)


async def test_whoever_takes_a_long_answer_at_once_gets_a_part_of_it_in_each_turn_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    readers = new_executor(1, name="readers")
    transport = Swallow(ours)
    writer = ResponseWriter(transport, loop, lambda: writer.flush(), readers)
    writer.send([bytes(3 * TURN_BYTES_MAX)])
    taken = [transport.taken]
    while writer.is_blocked:
        await asyncio.sleep(0)
        taken.append(transport.taken)
    assert taken == [TURN_BYTES_MAX, 2 * TURN_BYTES_MAX, 3 * TURN_BYTES_MAX]
    ours.close()
    theirs.close()
    readers.shutdown()


async def test_many_long_answers_have_one_part_of_a_turn_together() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    readers = new_executor(1, name="readers")
    transport = Swallow(ours)
    writer = ResponseWriter(transport, loop, lambda: writer.flush(), readers)
    for _ in range(5):
        writer.send([bytes(TURN_BYTES_MAX)])
    writer.send([b"short"])
    taken = [transport.taken]
    while writer.is_blocked:
        await asyncio.sleep(0)
        taken.append(transport.taken)
    steps = [after - before for before, after in pairwise(taken)]
    assert taken[0] == TURN_BYTES_MAX
    assert max(steps) <= TURN_BYTES_MAX + len(b"short")
    assert taken[-1] == 5 * TURN_BYTES_MAX + len(b"short")
    ours.close()
    theirs.close()
    readers.shutdown()


async def test_what_is_left_of_a_long_answer_goes_out_before_the_connection_is_closed() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    readers = new_executor(1, name="readers")
    writer = ResponseWriter(transport, loop, lambda: None, readers)
    writer.send([bytes(5 << 20)])
    writer.leave_to_transport()
    transport.close()
    got = 0
    while part := await asyncio.wait_for(loop.sock_recv(theirs, 1 << 20), 10):
        got += len(part)
    assert got == 5 << 20
    theirs.close()
    readers.shutdown()
