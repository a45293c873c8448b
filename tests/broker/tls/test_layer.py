"""The layer between a socket and a protocol, without a socket: bytes in any pieces, in any order of events."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from typing import Any

import pytest

from tidemark.broker.config import BrokerConfig
from tidemark.broker.tls.contexts import client_context, server_context
from tidemark.broker.tls.failures import HandshakeFailed
from tidemark.broker.tls.handshakes import Handshakes
from tidemark.broker.tls.layer import TlsLayer
from tidemark.broker.tls.stores import read_stores


class Wire(asyncio.Transport):
    """A socket that takes everything, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.reads = True
        self.closed = ""

    def write(self, data: Any) -> None:
        self.sent += data

    def taken(self) -> bytes:
        sent, self.sent = bytes(self.sent), bytearray()
        return sent

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"

    def is_closing(self) -> bool:
        return bool(self.closed)

    def get_write_buffer_size(self) -> int:
        return 0


class Echo(asyncio.BufferedProtocol):
    """Sends back what it gets; reads into a buffer of an odd size."""

    def __init__(self, buffer_bytes: int = 1000) -> None:
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.got = bytearray()
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self.buffer[:nbytes]
        self.transport.write(self.buffer[:nbytes])

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Client:
    """The other end: OpenSSL, without a layer of ours."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def handshake(self, answer: bytes = b"") -> bytes:
        self.incoming.write(answer)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        self.incoming.write(data)
        found = bytearray()
        try:
            while piece := self.tls.read(1 << 16):
                found += piece
        except ssl.SSLWantReadError:
            pass
        return bytes(found)


class Ends:
    def __init__(self, config: BrokerConfig, echo: Echo | None = None, *, seconds_max: float = 60.0) -> None:
        read = read_stores(config)
        self.handshakes = Handshakes(asyncio.get_running_loop())
        self.echo = echo or Echo()
        self.wire = Wire()
        self.failures: list[str] = []
        self.layer = TlsLayer(
            self.echo,
            server_context(config, read),
            self.handshakes,
            seconds_max=seconds_max,
            secured=lambda _: None,
            failed=self.failures.append,
        )
        self.client = Client(client_context(config, read))
        self.layer.connection_made(self.wire)

    async def feed(self, data: bytes, *, piece_bytes: int | random.Random = 1 << 20) -> None:
        while data:
            while not self.wire.reads and not self.wire.closed:
                await asyncio.sleep(0)
            if self.wire.closed:
                return
            wanted = piece_bytes if isinstance(piece_bytes, int) else piece_bytes.randint(1, 5000)
            count = min(wanted, len(data), len(self.layer.get_buffer(-1)))
            self.layer.get_buffer(-1)[:count] = data[:count]
            data = data[count:]
            self.layer.buffer_updated(count)

    async def settle(self) -> None:
        while not self.wire.reads and not self.wire.closed:
            await asyncio.sleep(0)

    async def shake_hands(self, *, piece_bytes: int | random.Random = 1 << 20) -> None:
        flight = self.client.handshake()
        while flight:
            await self.feed(flight, piece_bytes=piece_bytes)
            await self.settle()
            flight = self.client.handshake(self.wire.taken())


@pytest.fixture
def ends(stores):
    made: list[Ends] = []

    def make(*args: Any, config: dict[str, str] | None = None, **rest: Any) -> Ends:
        made.append(Ends(stores.config(**(config or {})), *args, **rest))
        return made[-1]

    yield make
    for each in made:
        each.layer.connection_lost(None)
        each.handshakes.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_what_is_sent_byte_by_byte_arrives_whole(ends, version) -> None:
    both = ends(config={"ssl_enabled_protocols": version})
    await both.shake_hands(piece_bytes=1)
    message = random.Random(1).randbytes(3000)
    await both.feed(both.client.encrypt(message), piece_bytes=1)
    assert both.echo.got == message
    assert both.client.decrypt(both.wire.taken()) == message
    assert not both.failures


@pytest.mark.parametrize("seed", range(20))
async def test_records_may_be_cut_anywhere(ends, seed) -> None:
    chance = random.Random(seed)
    both = ends(Echo(chance.choice([1, 7, 1000, 16384, 100_000])))
    await both.shake_hands(piece_bytes=chance)
    messages = [chance.randbytes(chance.choice([1, 100, 16384, 16385, 70_000])) for _ in range(6)]
    encrypted = b"".join(both.client.encrypt(each) for each in messages)
    await both.feed(encrypted, piece_bytes=chance)
    assert both.echo.got == b"".join(messages)
    assert both.client.decrypt(both.wire.taken()) == b"".join(messages)


@pytest.mark.parametrize("seed", range(30))
async def test_a_damaged_byte_ends_the_connection_and_never_arrives(ends, seed) -> None:
    chance = random.Random(seed)
    both = ends()
    await both.shake_hands()
    message = chance.randbytes(20_000)
    encrypted = bytearray(both.client.encrypt(message))
    encrypted[chance.randrange(len(encrypted))] ^= 1 << chance.randrange(8)
    await both.feed(bytes(encrypted), piece_bytes=chance)
    assert message.startswith(both.echo.got)
    assert len(both.echo.got) < len(message)
    # A damaged length may still be waited for; all else is noticed at once.
    assert both.wire.closed == "aborted" or not both.failures
    assert len(both.failures) <= 1


@pytest.mark.parametrize("seed", range(30))
async def test_a_damaged_handshake_ends_with_one_reason(ends, seed) -> None:
    chance = random.Random(seed)
    both = ends(seconds_max=0.05)
    hello = bytearray(both.client.handshake())
    hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
    await both.feed(bytes(hello), piece_bytes=chance)
    for _ in range(1000):
        if both.wire.closed:
            break
        await asyncio.sleep(0.005)
    # A random number that differs is no damage to the server, which then waits for the client.
    assert both.wire.closed
    assert len(both.failures) == 1


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"\x00\x00\x00\x11\x00\x12\x00\x00", b"\x15\x03\x01\x00\x02"])
async def test_what_is_not_tls_is_told_so_at_once(ends, first) -> None:
    both = ends()
    await both.feed(first)
    assert both.wire.closed == "aborted"
    [reason] = both.failures
    assert "does not speak TLS" in reason


async def test_a_silent_client_is_hung_up_on(ends) -> None:
    both = ends(seconds_max=0.01)
    while not both.wire.closed:
        await asyncio.sleep(0.005)
    assert both.failures == ["the handshake was not done within 0.01 s"]


async def test_an_endless_handshake_is_ended(ends) -> None:
    both = ends()
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + bytes(16380)
    for _ in range(40):
        await both.feed(record)
        await both.settle()
        if both.wire.closed:
            break
    assert both.wire.closed
    assert len(both.failures) == 1


async def test_nothing_is_handed_over_while_the_protocol_does_not_read(ends) -> None:
    both = ends(Echo(100))
    await both.shake_hands()
    both.layer.pause_reading()
    assert not both.wire.reads
    data = both.client.encrypt(bytes(5000))
    both.layer.get_buffer(-1)[: len(data)] = data  # it was on its way already
    both.layer.buffer_updated(len(data))
    assert not both.echo.got
    both.layer.resume_reading()
    await both.settle()
    assert len(both.echo.got) == 5000


async def test_a_farewell_is_the_end_of_what_arrives(ends) -> None:
    both = ends()
    await both.shake_hands()
    message = both.client.encrypt(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        both.client.tls.unwrap()
    await both.feed(message + both.client.outgoing.read())
    assert both.echo.got == b"last words"
    assert both.echo.events == ["eof"]
    assert both.wire.closed == "closed"


async def test_a_connection_that_is_cut_off_in_a_record_ends(ends) -> None:
    both = ends()
    await both.shake_hands()
    await both.feed(both.client.encrypt(bytes(1000))[:-1])
    assert both.layer.eof_received() is False
    assert both.echo.events == ["eof"]
    assert not both.echo.got


async def test_we_say_farewell_when_we_close(ends) -> None:
    both = ends()
    await both.shake_hands()
    both.wire.taken()
    both.layer.close()
    assert both.wire.closed == "closed"
    both.client.incoming.write(both.wire.taken())
    assert both.client.tls.read(1) == b"", "it is an end, not a cut"


async def test_who_refuses_the_client_after_the_handshake_closes_it(ends) -> None:
    both = ends()

    def refuse(_: ssl.SSLObject) -> None:
        raise HandshakeFailed("not you")

    both.layer._secured = refuse
    await both.shake_hands()
    await both.settle()
    assert both.failures == ["not you"]
    assert both.wire.closed == "closed"


async def test_requests_right_behind_the_handshake_are_not_lost(ends) -> None:
    both = ends()
    await both.feed(both.client.handshake())
    await both.settle()
    last = both.client.handshake(both.wire.taken())
    await both.feed(last + both.client.encrypt(b"early"))
    await both.settle()
    assert both.echo.got == b"early"
