"""HTTP/1.1 as clients send it, good and bad: over real sockets, byte by byte where that matters."""

import asyncio
import json
from typing import Any

import pytest

from tidemark.broker.http.connection import HEAD_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX

LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_requests_on_one_connection_are_answered_in_order(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http(), LIVE + b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n" + LIVE)
    assert [(await client.answer())[0] for _ in range(3)] == [200, 404, 200]


async def test_a_request_may_arrive_byte_by_byte(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http())
    for byte in LIVE:
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status", "error"),
    [
        (b"nonsense\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "INVALID_REQUEST"),  # TLS where none is spoken
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "INVALID_REQUEST"),
        (b"GET /" + b"a" * TARGET_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 414, "INVALID_REQUEST"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n", 431, "INVALID_REQUEST"),
        (
            b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: 1\r\n" % k for k in range(HEADERS_MAX + 1)) + b"\r\n",
            431,
            "INVALID_REQUEST",
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n", 413, "MESSAGE_TOO_LARGE"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400, "INVALID_REQUEST"),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000,
            413,
            "MESSAGE_TOO_LARGE",
        ),
    ],
)
async def test_what_cannot_be_taken_is_answered_and_ends_the_connection(
    start_http: Any, dial: Any, request_bytes: bytes, status: int, error: str
) -> None:
    client = await dial(await start_http(http_request_max_bytes="1024"), request_bytes)
    got, body = await client.answer()
    assert (got, json.loads(body)["error"]) == (status, error)
    assert await client.ends() == b""


async def test_a_request_before_a_bad_one_is_still_answered(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http(), LIVE + b"nonsense\r\n\r\n")
    assert [(await client.answer())[0] for _ in range(2)] == [200, 400]
    assert await client.ends() == b""


async def test_the_answer_to_a_body_that_is_too_long_reaches_a_client_that_still_sends(
    start_http: Any, browse: Any
) -> None:
    node = await start_http(http_request_max_bytes="1024")
    answer = await browse(node).post("/livez", content=b"x" * (4 << 20))
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_client_that_does_not_finish_its_request_is_told_and_cut_off(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http(http_request_timeout_ms="200"), LIVE[:-4])
    assert (await client.answer())[0] == 408
    assert await client.ends() == b""


async def test_a_silent_connection_is_closed(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http(http_request_timeout_ms="200"), LIVE)
    await client.answer()
    assert await client.ends() == b""


async def test_more_connections_than_allowed_are_refused_and_others_go_on(start_http: Any, dial: Any) -> None:
    node = await start_http(http_max_connections="2")
    first, second = [await dial(node, LIVE) for _ in range(2)]
    assert (await first.answer())[0] == (await second.answer())[0] == 200
    third = await dial(node, LIVE)
    assert await third.ends() == b""
    first.writer.write(LIVE)
    assert (await first.answer())[0] == 200


async def test_bodies_that_need_more_memory_than_there_is_are_refused(start_http: Any, dial: Any) -> None:
    node = await start_http(http_queued_max_bytes="1024")
    holding = await dial(node, b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b"x" * 1000)
    other = await dial(node, b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)
    # Which of the two comes first is the network's choice: one of them holds its bytes, the other is refused.
    done, _ = await asyncio.wait(
        [asyncio.ensure_future(client.answer()) for client in (holding, other)], return_when=asyncio.FIRST_COMPLETED
    )
    assert [each.result()[0] for each in done] == [503]
    await holding.close()
    await other.close()


async def test_a_head_has_no_body_and_an_old_client_is_hung_up_on(start_http: Any, dial: Any) -> None:
    node = await start_http()
    client = await dial(node, b"HEAD /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await client.ends()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")
    old = await dial(node, b"GET /livez HTTP/1.0\r\n\r\n")
    assert b'"live"' in await old.ends()


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(start_http: Any, dial: Any) -> None:
    head = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    client = await dial(await start_http(), head)
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.writer.write(b"{}")
    assert (await client.answer())[0] == 405


WISH = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
RECORD = b'{"value": 1}'
CHUNKED_RECORD = b"c\r\n" + RECORD + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "body", [b"Content-Length: 12\r\n\r\n" + RECORD, b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED_RECORD]
)
@pytest.mark.parametrize("wish", [WISH, b"Upgrade: websocket\r\nConnection: keep-alive, upgrade\r\n"])
async def test_a_wish_for_another_protocol_is_passed_over_and_the_body_is_read(
    start_http: Any, dial: Any, body: bytes, wish: bytes
) -> None:
    """Java's client wishes for HTTP/2 with the first request on a connection, whatever it is."""
    post = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + wish + body
    node = await start_http(num_partitions="1")
    client = await dial(node, post + LIVE + post + LIVE)
    assert [(await client.answer())[0] for _ in range(4)] == [200] * 4
    slow = await dial(node)
    for byte in post:
        slow.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    status, answer = await slow.answer()
    assert (status, json.loads(answer)) == (200, {"offsets": [{"partition": 0, "offset": 2}]})


async def test_who_wishes_for_another_protocol_is_held_to_the_same_limits(start_http: Any, dial: Any) -> None:
    node = await start_http(http_request_max_bytes="1024")
    head = b"POST /livez HTTP/1.1\r\nHost: x\r\n" + WISH
    waits = await dial(node, head + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert await waits.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    waits.writer.write(b"{}")
    assert (await waits.answer())[0] == 405
    for rest, status in (
        (b"Content-Length: 2000\r\n\r\n", 413),
        (b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000, 413),
        (b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + LIVE, 400),
        (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED + LIVE, 400),
        (b"A: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
    ):
        refused = await dial(node, head + rest)
        assert (await refused.answer())[0] == status, rest[:60]
        assert await refused.ends() == b""


async def test_it_is_no_proxy(start_http: Any, dial: Any) -> None:
    client = await dial(await start_http(), b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n" + LIVE)
    assert (await client.answer())[0] == 501
    assert await client.ends() == b""


@pytest.mark.parametrize(
    "host", [b"", b"Host: a b\r\n", b"Host: a/b\r\n", b"Host: ann@localhost\r\n", b"Host: localhost:http\r\n"]
)
async def test_a_request_without_a_host_that_can_be_one_is_refused(start_http: Any, dial: Any, host: bytes) -> None:
    client = await dial(await start_http(), b"GET /livez HTTP/1.1\r\n" + host + b"\r\n" + LIVE)
    assert (await client.answer())[0] == 400
    assert await client.ends() == b""


async def test_hosts_are_names_and_addresses_with_or_without_a_port(start_http: Any, dial: Any) -> None:
    node = await start_http()
    for host in (b"", b"localhost", b"a_b.example:80", b"[::1]:8082", b"127.0.0.1:", b"[fe80::1%25eth0]:80"):
        client = await dial(node, b"GET /livez HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert (await client.answer())[0] == 200, host


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/livez", 200),
        (b"HTTP://LOCALHOST:8082/topics?", 200),
        (b"http://127.0.0.1", 404),
        (b"http://127.0.0.1?x=1", 404),
        (b"http://evil.example/topics", 421),
        (b"https://localhost/livez", 421),
        (b"http:///livez", 400),
        (b"http://ann:secret@localhost/livez", 400),
        (b"ftp://localhost/livez", 404),
    ],
)
async def test_a_target_may_be_whole_and_its_host_counts(
    start_http: Any, dial: Any, target: bytes, status: int
) -> None:
    client = await dial(await start_http(), b"GET " + target + b" HTTP/1.1\r\nHost: other.example\r\n\r\n")
    assert (await client.answer())[0] == status


async def test_a_node_that_stops_hangs_up_on_idle_clients(start_http: Any, dial: Any) -> None:
    node = await start_http()
    client = await dial(node, LIVE)
    await client.answer()
    await node.stop()
    assert await client.ends() == b""


async def test_pages_of_other_origins_get_at_nothing_unless_theirs_is_allowed(start_http: Any, browse: Any) -> None:
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    client = browse(await start_http())
    assert (await client.options("/topics", headers=asks)).status_code == 405
    answer = await client.get("/topics", headers=asks)
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_pages_of_an_allowed_origin_may_read_and_send(start_http: Any, browse: Any) -> None:
    client = browse(await start_http(http_cors_allowed_origins="https://app.example"))
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    allowed = await client.options("/topics", headers=asks)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (204, "https://app.example")
    assert "Idempotency-Key" in allowed.headers["access-control-allow-headers"]
    for path in ("/topics", "/topics/nowhere", "/readyz"):
        answer = await client.get(path, headers={"Origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
    other = await client.options("/topics", headers=asks | {"Origin": "https://evil.example"})
    assert [name for name in other.headers if name.startswith("access-control")] == []


CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost:80\r\nHost: localhost\r\n\r\n", 400),
        (b"POST /topics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, 400),
        (b"POST /topics HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400),
    ],
)
async def test_what_others_may_read_differently_is_refused(
    start_http: Any, dial: Any, request_bytes: bytes, status: int
) -> None:
    client = await dial(await start_http(), request_bytes + LIVE)
    assert (await client.answer())[0] == status
    assert await client.ends() == b""


async def test_an_old_client_that_wants_to_go_on_is_told_that_it_ends(start_http: Any, dial: Any) -> None:
    head = b"POST /livez HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    answer = await (await dial(await start_http(), head + b"{}")).ends()
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nConnection: close\r\n" in answer
