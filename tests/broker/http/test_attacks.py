"""The worst clients: what they send is refused or costs little, and the others are served meanwhile."""

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest

POST = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
READERS = 500
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
