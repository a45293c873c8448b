"""What there is limited room for is shared: who has most of it makes way for others, and nobody can use it all up."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from tidemark.broker.http import streaming
from tidemark.broker.http.fair_turns import FairTurns
from tidemark.broker.node import Node

HOG, OTHER = "127.0.0.1", "127.0.0.2"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

Browse = Callable[[Node], Any]


@pytest.fixture
async def other(browse: Any) -> Browse:
    """An HTTP client at another address."""
    return lambda node: browse(node, transport=httpx.AsyncHTTPTransport(local_address=OTHER))


@pytest.fixture
async def dial_from() -> AsyncIterator[Any]:
    """A connection from an address."""
    opened: list[asyncio.StreamWriter] = []

    async def connect(node: Node, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*node.http_endpoints["HTTP"], local_addr=(host, 0))
        opened.append(writer)
        return reader, writer

    yield connect
    for writer in opened:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_consumers_of_who_has_most_make_way_for_others(start_http: Any, browse: Any, other: Browse) -> None:
    node = await start_http(http_consumers_max="4", offsets_topic_num_partitions="1")
    hog, late = browse(node), other(node)

    async def make(client: Any) -> Any:
        return await client.post("/groups/g/consumers", json={})

    urls = [(await make(hog)).json()["url"] for _ in range(4)]
    assert (await make(hog)).status_code == 429, "its own do not make way"
    assert (await hog.get(urls[0])).status_code == 200, "it was used later than the others"
    assert [(await make(late)).status_code for _ in range(3)] == [201, 201, 429], "half of them, and no more"
    assert [(await hog.get(url)).status_code for url in urls] == [200, 404, 404, 200]
    assert (await make(hog)).status_code == 429


async def answered(dialed: Any) -> bool:
    reader, writer = dialed
    try:
        writer.write(GET)
        return b" 200 OK" in await asyncio.wait_for(reader.readuntil(b"}"), 10)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


async def test_connections_of_who_has_most_make_way_for_others(start_http: Any, dial_from: Any) -> None:
    node = await start_http(http_max_connections="4")
    of_hog = []
    for _ in range(4):
        of_hog.append(await dial_from(node, HOG))
        assert await answered(of_hog[-1])
    assert not await answered(await dial_from(node, HOG)), "its own do not make way"
    reader, writer = of_hog[0]
    writer.write(POST + b"Content-Length: 12\r\n\r\n[")
    async with asyncio.timeout(10):
        while node._http.load[1] == 0:
            await asyncio.sleep(0.01)
    assert [await answered(await dial_from(node, OTHER)) for _ in range(3)] == [True, True, False]
    assert [await answered(each) for each in of_hog[1:]] == [False, False, True], "those that were unused for longest"
    writer.write(b'{"value":1}')
    assert b" 400 " in await asyncio.wait_for(reader.readline(), 10), "it was in use"


async def test_bodies_of_who_sends_most_make_way_for_others(start_http: Any, dial_from: Any, other: Browse) -> None:
    node = await start_http(http_queued_max_bytes="300000")
    held = []
    for size in (90_000, 100_000, 90_000):
        reader, writer = await dial_from(node, HOG)
        writer.write(POST + b"Content-Length: 200000\r\n\r\n" + b" " * size)
        held.append(reader)
    async with asyncio.timeout(10):
        while node._http.load[1] < 280_000:
            await asyncio.sleep(0.01)
    answer = await other(node).post("/topics/t/records", json={"value": "x" * 50_000})
    assert answer.status_code == 200, answer.text
    assert b" 503 " in await asyncio.wait_for(held[1].readline(), 10), "the longest of them"
    assert node._http.load[1] == 180_000


async def test_streams_of_who_follows_most_make_way_for_others(
    start_http: Any, browse: Any, other: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "FOLLOWED_MAX", 6)
    node = await start_http()
    hog, late = browse(node), other(node)
    await hog.post("/topics", json={"name": "t", "partitions": 2})
    async with contextlib.AsyncExitStack() as opened:

        async def stream(client: Any) -> Any:
            return await opened.enter_async_context(client.stream("GET", "/topics/t/stream"))

        first, *_ = [await stream(hog) for _ in range(3)]
        assert (await stream(hog)).status_code == 503, "its own do not make way"
        assert (await stream(late)).status_code == 200
        async with asyncio.timeout(10):
            told = json.loads(await anext(first.aiter_lines()))
        assert (told["status"], told["error"]) == (503, "BROKER_NOT_AVAILABLE")
        assert (await stream(late)).status_code == 503, "it would have as many as the other"


async def test_of_those_who_wait_each_client_is_let_in_in_turn() -> None:
    turns, entered = FairTurns(1), []

    async def work(client: str) -> None:
        async with turns.turn_of(client):
            entered.append(client)
            await asyncio.sleep(0)

    clients = ["a"] * 5 + ["b", "b", "c"]
    await asyncio.gather(*map(work, clients))
    assert entered == ["a", "a", "b", "c", "a", "b", "a", "a"]


async def test_who_gives_up_waiting_keeps_nobody_out() -> None:
    turns = FairTurns(1)
    entered = asyncio.Event()

    async def work() -> None:
        async with turns.turn_of("a"):
            entered.set()
            await asyncio.sleep(60)

    first, second, third = [asyncio.create_task(work()) for _ in range(3)]
    await entered.wait()
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()  # while it is let in
    await asyncio.gather(first, second, return_exceptions=True)
    entered.clear()
    third.cancel()
    fourth = asyncio.create_task(work())
    async with asyncio.timeout(10):
        await entered.wait()
    fourth.cancel()
    await asyncio.gather(third, fourth, return_exceptions=True)
