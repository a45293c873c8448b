"""Links between nodes: pipelined, found again by correlation id, opened anew, and clear about what did not work."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tidemark.broker.peers import PeerLink, PeerUnavailable
from tidemark.broker.peers.link import KEEP_ALIVE_SECONDS, UNACKNOWLEDGED_MS_MAX
from tidemark.broker.peers.peers import client_id_of, node_id_of
from tidemark.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from tidemark.protocol.messages.fetch import PartitionData as FetchedPartition
from tidemark.protocol.schema import codec

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server that answers each frame as it is told."""

    def __init__(self) -> None:
        self.answer: Answer = self.with_versions
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await self.answer(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()

    async def with_versions(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        body = bytearray()
        codec(ApiVersionsResponse, 1).encode(ApiVersionsResponse(api_keys=[ApiVersion(api_key=7)]), body)
        writer.write(struct.pack(">i", len(body) + 4) + frame[4:8] + body)

    async def with_silence(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to this very process is made at once, unless the machine has no time for the process."""
    monkeypatch.setattr("tidemark.broker.peers.link.CONNECT_SECONDS_MAX", 60.0)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.fixture
async def link(peer: Peer) -> AsyncIterator[PeerLink]:
    link = PeerLink("127.0.0.1", peer.port, client_id="node-1")
    yield link
    await link.close()


async def ask(link: PeerLink, seconds: float = 60.0) -> ApiVersionsResponse:
    return await link.send(ApiVersionsRequest(), version=1, timeout=seconds, response=ApiVersionsResponse)


async def test_many_requests_share_one_connection(peer: Peer, link: PeerLink) -> None:
    answers = await asyncio.gather(*(ask(link) for _ in range(50)))
    assert all(answer.api_keys[0].api_key == 7 for answer in answers)
    assert peer.connections == 1


async def test_answers_find_their_requests_in_any_order(peer: Peer, link: PeerLink) -> None:
    held: list[bytes] = []

    async def backwards(frame: bytes, writer: asyncio.StreamWriter) -> None:
        held.append(frame)
        if len(held) == 3:
            for each in reversed(held):
                await peer.with_versions(each, writer)

    peer.answer = backwards
    assert len(await asyncio.gather(ask(link), ask(link), ask(link))) == 3


async def test_a_late_answer_closes_the_connection_and_the_next_request_opens_another(
    peer: Peer, link: PeerLink
) -> None:
    peer.answer = peer.with_silence
    with pytest.raises(PeerUnavailable, match="did not answer within"):
        await ask(link, 0.05)
    peer.answer = peer.with_versions
    await ask(link)
    assert peer.connections == 2


async def test_a_request_fails_at_once_when_the_other_is_gone(peer: Peer) -> None:
    lost = asyncio.Event()
    link = PeerLink("127.0.0.1", peer.port, client_id="node-1", lost=lost.set)
    peer.answer = peer.with_silence
    waiting = asyncio.create_task(ask(link, 60))
    async with asyncio.timeout(20):
        while not peer.connections:
            await asyncio.sleep(0.001)
    await peer.stop()
    with pytest.raises(PeerUnavailable, match="is gone"):
        await asyncio.wait_for(waiting, 20)
    assert lost.is_set()
    with pytest.raises(PeerUnavailable, match="cannot be reached"):
        await ask(link)
    await peer.start(peer.port)
    peer.answer = peer.with_versions
    await ask(link)
    await link.close()
    with pytest.raises(PeerUnavailable, match="closed"):
        await ask(link)


async def test_records_arrive_as_views_of_one_buffer(peer: Peer, link: PeerLink) -> None:
    records = bytes(range(256)) * 20_000

    async def with_records(frame: bytes, writer: asyncio.StreamWriter) -> None:
        partition = FetchedPartition(partition_index=0, records=records)
        body = bytearray()
        codec(FetchResponse, 12).encode(
            FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]), body
        )
        writer.write(struct.pack(">i", len(body) + 5) + frame[4:8] + b"\0" + body)

    peer.answer = with_records
    answer = await link.send(FetchRequest(), version=12, timeout=60.0, response=FetchResponse)
    found = answer.responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found == records


async def test_what_has_no_answer_is_lost_until_there_is_a_connection(peer: Peer, link: PeerLink) -> None:
    assert not link.post(18, 1, b"", flexible=False)
    async with asyncio.timeout(20):
        while not link.post(18, 1, b"", flexible=False):
            await asyncio.sleep(0.001)


async def test_garbage_is_refused(peer: Peer, link: PeerLink) -> None:
    async def garbage(frame: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", 7) + frame[4:8] + b"abc")

    peer.answer = garbage
    with pytest.raises(PeerUnavailable, match="cannot be read"):
        await ask(link)


def test_a_node_is_known_by_its_client_id() -> None:
    assert node_id_of(client_id_of(7)) == 7
    assert node_id_of("node-x") is None
    assert node_id_of(None) is None


async def test_who_asks_all_the_time_needs_an_open_connection_and_no_task(peer: Peer, link: PeerLink) -> None:
    assert link.begin(ApiVersionsRequest(), version=1) is None
    await ask(link)
    begun = link.begin(ApiVersionsRequest(), version=1)
    assert begun is not None
    answer = link.decoded(await begun, ApiVersionsResponse, version=1)
    assert answer.api_keys[0].api_key == 7
    assert peer.connections == 1


async def test_who_hangs_up_ends_what_was_begun(peer: Peer, link: PeerLink) -> None:
    await ask(link)
    peer.answer = peer.with_silence
    begun = link.begin(ApiVersionsRequest(), version=1)
    assert begun is not None
    link.hang_up()
    with pytest.raises(PeerUnavailable, match="is gone"):
        await begun
    assert link.begin(ApiVersionsRequest(), version=1) is None


async def test_links_of_two_nodes_in_one_process_share_no_buffer(peer: Peer) -> None:
    one, other = (PeerLink("127.0.0.1", peer.port, client_id=client_id_of(number)) for number in (1, 2))
    assert one.scratch is not other.scratch
    await asyncio.gather(one.close(), other.close())


async def test_a_connection_that_the_network_has_swallowed_is_given_up_soon(peer: Peer, link: PeerLink) -> None:
    await ask(link)
    assert link._channel is not None
    connected = link._channel._transport.get_extra_info("socket")
    assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNACKNOWLEDGED_MS_MAX
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE_SECONDS


async def post_until(link: PeerLink, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            link.post(18, 1, b"", flexible=False)
            await asyncio.sleep(0.005)


async def test_a_peer_that_answers_nothing_is_dialled_anew(peer: Peer) -> None:
    link = PeerLink("127.0.0.1", peer.port, client_id="node-1", silence_seconds_max=0.1)
    peer.answer = peer.with_silence
    await post_until(link, lambda: peer.connections >= 3)
    await link.close()


async def test_a_peer_that_answers_keeps_its_connection(peer: Peer) -> None:
    link = PeerLink("127.0.0.1", peer.port, client_id="node-1", silence_seconds_max=0.1)
    asked = 0

    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += frame[:4] == b"\0\x12\0\0"  # ApiVersions v0, which only the link asks here
        await peer.with_versions(frame, writer)

    peer.answer = answer
    await post_until(link, lambda: asked >= 5)
    assert peer.connections == 1
    await link.close()


async def test_a_process_that_stood_still_does_not_take_its_peers_for_silent(peer: Peer) -> None:
    link = PeerLink("127.0.0.1", peer.port, client_id="node-1", silence_seconds_max=0.1)
    await ask(link)
    assert link.post(18, 1, b"", flexible=False)  # and with it a question that tells whether the peer is there
    time.sleep(0.15)  # noqa: ASYNC251 -- the whole event loop stands still
    assert link.post(18, 1, b"", flexible=False), "the answer had no chance to be read"
    assert peer.connections == 1
    await link.close()
