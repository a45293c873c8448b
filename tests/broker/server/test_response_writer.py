"""What leaves a connection."""

import asyncio
import logging
import socket

import pytest

from tidemark.broker.server.response_writer import ResponseWriter
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
