"""The worst clients: what they send is refused or costs little, and the others are served meanwhile."""

import asyncio
import contextlib
import gc
import json
import socket
import weakref
from typing import Any

import pytest
from harness.ports import free_port

import tidemark
from tests.broker.server.loop_watch import LoopWatch
from tidemark.broker.http import openapi, sliced_json, streaming
from tidemark.broker.http.application import HttpApplication
from tidemark.broker.http.messages import HttpRequest

POST = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
READERS = 500
PIPELINED = 3_000
HELD_SECONDS_MAX = 0.5  # of a loop that is a test's, on a busy machine; alone it is a tenth


@pytest.mark.parametrize(
    "attack",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + GET,
        POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + GET,
        POST + b"Content-Length: 2, 2\r\n\r\n{}" + GET,
        POST + b"Content-Length: +2\r\n\r\n{}" + GET,
        POST + b"Content-Length: 0x2\r\n\r\n{}" + GET,
        POST + b"Content-Length: -1\r\n\r\n{}" + GET,
        POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + GET,
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + GET,
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + GET,
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + GET,
        POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n" + GET,
        POST + b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n" + b"x" * (3 << 20),
        POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + GET,
        POST + b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
        POST + b" folded: x\r\n\r\n" + GET,
        POST + b"No\0ul: x\r\n\r\n" + GET,
    ],
    ids=range(17),
)
async def test_no_second_request_is_smuggled_in(start_http: Any, dial: Any, attack: bytes) -> None:
    client = await dial(await start_http(), attack)
    answered = await client.ends()
    assert b'"live"' not in answered
    assert answered.count(b"HTTP/1.1 4") == 1
    assert answered.count(b"HTTP/1.1 ") == 1


async def test_bad_bodies_are_refused_and_cost_little(start_http: Any, browse: Any) -> None:
    client = browse(await start_http())
    wide = "[" + "[]," * 600_000 + "[]]"
    for body in (
        "[" * 500_000,
        '{"value":' * 100_000,
        json.dumps({"value": 1})[:-1] + ', "value": 1e999}',
        '{"value": ' + "9" * 1_000_000 + "}",
        '{"value": "\\ud800"}',
        '{"key": "\\udfff"}',
        '{"value": NaN}',
        wide,
        '{"value": 1, "headers": ' + json.dumps({str(n): 1 for n in range(1000)}) + "}",
    ):
        answer = await client.post("/topics/t/records", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (body[:40], answer.text[:200])
    for raw in (b"\xff\xfe{}", b"\xc3", b"", b"\0" * 100):
        answer = await client.post("/topics/t/records", content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400


async def test_paths_lead_nowhere_else(start_http: Any, dial: Any) -> None:
    node = await start_http(auto_create_topics_enable="false")
    for path in (
        b"/../etc/passwd",
        b"/topics/..%2f..%2fetc",
        b"/topics/%2e%2e/%2e%2e",
        b"/topics/%00/configs",
        b"/topics/%ff%fe",
        b"/topics/a%2Fb/partitions/0/records",
        b"//livez",
        b"/livez/",
        b"/topics/t/partitions/99999999999999999999/records",
        b"/topics/t/partitions/%D9%A3/records",
        b"http://127.0.0.1/../x",
        b"*",
    ):
        client = await dial(node, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status, _ = await client.answer()
        assert status in (400, 404), path
    plain = await dial(node, b"GET /%74opics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await plain.answer())[0] == 200, "an escaped letter is that letter"


async def test_readers_that_do_not_read_hold_nobody_up_and_are_cut_off(start_http: Any, browse: Any) -> None:
    node = await start_http(http_request_timeout_ms="1000", http_max_connections="600")
    client = browse(node)
    await client.post("/topics", json={"name": "t", "partitions": 1})
    for _ in range(2):
        await client.post("/topics/t/records", json=[{"value": "x" * 10_000} for _ in range(100)])
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as opened:
        for _ in range(READERS):
            slow = opened.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await loop.sock_connect(slow, node.http_endpoints["HTTP"])
            slow.send(b"GET /topics/t/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        longest, deadline = 0.0, loop.time() + 60
        while node._http.load[0] > 10:
            assert loop.time() < deadline, f"{node._http.load[0]} are still connected"
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)
            await asyncio.sleep(0.01)
        assert (await client.get("/livez")).status_code == 200
        assert longest < HELD_SECONDS_MAX


async def test_a_stream_ends_with_a_word_when_its_topic_is_deleted(start_http: Any, browse: Any) -> None:
    client = browse(await start_http(auto_create_topics_enable="false"))
    await client.post("/topics", json={"name": "t", "partitions": 2})
    await client.post("/topics/t/records", json={"value": 1})
    async with client.stream("GET", "/topics/t/stream") as stream, asyncio.timeout(15):
        lines = stream.aiter_lines()
        assert json.loads(await anext(lines))["value"] == 1
        assert (await client.delete("/topics/t")).status_code == 204
        assert json.loads(await anext(lines))["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert [line async for line in lines] == []


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_stream_follows_partitions_that_are_added(start_http: Any, browse: Any, start: str) -> None:
    client = await _client_of_topic(start_http, browse, partitions=1)
    async with client.stream("GET", f"/topics/t/stream?offset={start}") as stream, asyncio.timeout(15):
        lines = stream.aiter_lines()
        assert (await client.patch("/topics/t", json={"partitions": 3})).status_code == 204
        records = [{"value": partition, "partition": partition} for partition in range(3)]
        assert (await client.post("/topics/t/records", json=records)).status_code == 200
        assert {json.loads(await anext(lines))["value"] for _ in range(3)} == {0, 1, 2}


async def test_a_stream_that_grows_counts_and_ends_with_a_word_if_there_is_no_room(
    start_http: Any, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "FOLLOWED_MAX", 5)
    client = await _client_of_topic(start_http, browse, partitions=2)
    async with client.stream("GET", "/topics/t/stream") as stream, asyncio.timeout(15):
        assert (await client.patch("/topics/t", json={"partitions": 6})).status_code == 204
        last = [line async for line in stream.aiter_lines() if line][-1]
        assert json.loads(last)["status"] == 503
    await client.post("/topics", json={"name": "u", "partitions": 5})
    async with asyncio.timeout(10), client.stream("GET", "/topics/u/stream") as stream:
        assert stream.status_code == 200, "nothing is counted any more"


async def test_clients_that_send_a_byte_now_and_then_are_cut_off_in_time(
    start_http: Any, browse: Any, dial: Any
) -> None:
    node = await start_http(http_request_timeout_ms="600", http_max_connections="300")
    client, loop = browse(node), asyncio.get_running_loop()
    assert (await client.get("/livez")).status_code == 200
    starts = (b"GET /topics HTTP/1.1\r\nX: ", b"\r\n\r\n", POST + b"Content-Length: 100000\r\n\r\n")
    slow = [await dial(node, starts[number % 3]) for number in range(240)]
    began = loop.time()
    while node._http.load[0] > 5:
        assert loop.time() < began + 10, f"{node._http.load[0]} of them are still connected"
        for each in slow:
            each.writer.write(b"\r\n" if each.writer is slow[1].writer else b"x")
        assert (await client.get("/livez")).status_code == 200
        await asyncio.sleep(0.05)


async def test_a_header_that_repeats_counts_each_time(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http(), b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 101 + b"\r\n")
    assert (await client.answer())[0] == 431, "each would be copied behind all those before it"


async def test_what_stands_behind_a_body_is_no_header(start_http: Any, dial: Any) -> None:
    """A proxy that looks after who may say what in a head does not see it."""
    body = b'd\r\n{"name": "t"}\r\n0\r\nContent-Type: application/json\r\nHost: a.page\r\n\r\n'
    head = b"POST /topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    node = await start_http()
    assert (await (await dial(node, head + b"\r\n" + body)).answer())[0] == 415
    typed = await dial(node, head + b"Content-Type: application/json\r\n\r\n" + body)
    assert (await typed.answer())[0] == 201, "and does no harm"


async def test_requests_that_come_all_at_once_are_read_a_few_at_a_time_and_all_answered(
    start_http: Any, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_http()
    client = await dial(node, GET)
    await client.answer()
    watch = LoopWatch(monkeypatch)
    body = b'{"value": 1}'
    post = POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    client.writer.write(GET * PIPELINED + post + GET)
    for _ in range(PIPELINED):
        assert (await client.answer())[0] == 200
    longest, what = watch.take()
    assert longest < 0.02, what
    assert b"offset" in (await client.answer())[1]
    assert b"live" in (await client.answer())[1]


async def test_a_client_without_chunks_gets_a_stream_as_it_is(start_http: Any, browse: Any, dial: Any) -> None:
    node = await start_http()
    assert (await browse(node).post("/topics/t/records", json={"value": 1})).status_code == 200
    client = await dial(node, b"GET /topics/t/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"chunked" not in head
    assert json.loads(await client.reader.readline())["value"] == 1


async def _client_of_topic(start_http: Any, browse: Any, *, partitions: int) -> Any:
    client = browse(await start_http())
    await client.post("/topics", json={"name": "t", "partitions": partitions})
    return client


async def _streams(client: Any) -> bool:
    async with client.stream("GET", "/topics/t/stream") as stream:
        return bool(stream.status_code == 200)


async def test_streams_follow_so_many_partitions_and_no_more(
    start_http: Any, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "FOLLOWED_MAX", 5)
    client = await _client_of_topic(start_http, browse, partitions=3)
    async with client.stream("GET", "/topics/t/stream") as stream:
        assert stream.status_code == 200
        assert (await client.get("/topics/t/stream")).status_code == 503
    async with asyncio.timeout(10):
        while not await _streams(client):  # once the first has ended
            await asyncio.sleep(0.05)


async def test_large_bodies_are_taken_apart_a_few_at_a_time(
    start_http: Any, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python's values `[],[],…` takes twenty times as much: 64 MB of it would be more than a gigabyte."""
    client, live, most = browse(await start_http()), 0, 0

    class Counted(sliced_json._Reader):
        def __init__(self, text: str) -> None:
            nonlocal live, most
            super().__init__(text)
            live += 1
            most = max(most, live)

        def __del__(self) -> None:
            nonlocal live
            live -= 1

    monkeypatch.setattr(sliced_json, "_Reader", Counted)
    body = "[" + "[]," * 100_000 + "[]]"
    posts = [
        client.post("/topics/t/records", content=body, headers={"Content-Type": "application/json"}) for _ in range(8)
    ]
    assert {answer.status_code for answer in await asyncio.gather(*posts)} == {400}
    assert 1 <= most <= 4


async def test_long_answers_that_nobody_reads_are_not_kept(start_http: Any, browse: Any, connect: Any) -> None:
    limit = 8 << 20
    node = await start_http(http_queued_max_bytes=str(limit))
    kafka, client, loop = await connect(node), browse(node), asyncio.get_running_loop()
    await kafka.create("t")
    for _ in range(4):
        await kafka.produce("t", b"x" * 1_000_000)
    path = "/topics/t/partitions/0/records?max_bytes=4194304"
    held, most = node._http._listener.held, 0
    with contextlib.ExitStack() as opened:
        for _ in range(10):
            slow = opened.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await loop.sock_connect(slow, node.http_endpoints["HTTP"])
            slow.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(5):
            answer = await client.get(path)
            assert len(answer.json()["records"]) == 4, "who reads gets it all"
            most = max(most, held.used_bytes)
        async with asyncio.timeout(20):
            while node._http.load[0] > 3:  # two that fit, and the one who reads
                await asyncio.sleep(0.05)
    assert most <= limit + (5 << 20), "but for the one that is being sent"


async def test_the_openapi_document_is_made_once(start_http: Any, browse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that make it for whoever asks would keep the event loop waiting for the interpreter."""
    client, made = browse(await start_http()), list[int]()
    make = openapi.document

    def make_counted(routes: Any) -> Any:
        made.append(1)
        return make(routes)

    monkeypatch.setattr(openapi, "document", make_counted)
    answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(5)))
    answers.append(await client.get("/openapi.json"))
    assert {each.status_code for each in answers} == {200}
    assert len({each.text for each in answers}) == 1
    assert made == [1]


async def test_those_who_scrape_at_the_same_time_get_the_same(start_http: Any, browse: Any) -> None:
    """Of ten thousand partitions it is megabytes, and a thousand may ask at once."""
    client = browse(await start_http())
    answers = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) < 15


@pytest.mark.parametrize(
    "start",
    [
        b"GET /livez HTTP/1.1\r\nX: ",
        b"GET /livez HTTP/1.1\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["value", "name", "extension", "trailer"],
)
async def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    start_http: Any, dial: Any, start: bytes
) -> None:
    client = await dial(await start_http(), start + b"a" * 200_000)
    status, body = await client.answer()
    assert status == 431, body
    await client.ends()


@pytest.mark.parametrize("body", ['{"value": "x', '{"value": "x", "bad": 1}', '{"key": "x", "value": 1e999}'])
def test_a_refused_request_is_not_kept_until_cycles_are_collected(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    asked, answer = list[weakref.ref[HttpRequest]](), HttpApplication.__call__

    async def noted(self: HttpApplication, request: HttpRequest) -> Any:
        asked.append(weakref.ref(request))
        return await answer(self, request)

    monkeypatch.setattr(HttpApplication, "__call__", noted)
    data, port = body.replace("x", "x" * 1_000_000).encode(), free_port()
    gc.disable()
    try:
        # A broker's own event loop, where long work is done by turns.
        with (
            tidemark.embedded(**{"http.listeners": f"HTTP://127.0.0.1:{port}"}),
            socket.create_connection(("127.0.0.1", port)) as client,
            client.makefile("rb") as answers,
        ):
            client.sendall(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
            assert answers.read().startswith(b"HTTP/1.1 400")
        assert [each() for each in asked] == [None]
    finally:
        gc.enable()
