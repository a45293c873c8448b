"""Records over HTTP: what is written is what Kafka clients read, and the other way round."""

import asyncio
import base64
import json
import time
from typing import Any, Final

import pytest

from tidemark.broker.http.calls import Calls
from tidemark.broker.http.fetching import LATEST, Fetching
from tidemark.broker.replication.role_assignment import LEADERSHIP_IS_OVER
from tidemark.protocol.checksum import crc32c
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import ProduceRequest
from tidemark.protocol.murmur2 import murmur2, partition_of_key
from tidemark.protocol.records import HEADER_SIZE, Record, build_batch, iter_records

SECONDS_MAX = 20.0


@pytest.fixture
async def http(start_http: Any, browse: Any, connect: Any) -> Any:
    """An HTTP client and a Kafka client of one node."""
    node = await start_http(offsets_topic_num_partitions="1")
    return browse(node), await connect(node), node


async def test_records_are_the_same_for_kafka_clients(http: Any) -> None:
    client, kafka, _ = http
    await kafka.create("t")
    now_ms = time.time_ns() // 1_000_000
    record = {"key": "k", "value": {"a": [1, "ü"]}, "headers": {"h": "x"}, "timestamp": now_ms}
    answer = await client.post("/topics/t/records", json=record)
    assert (answer.status_code, answer.json()) == (200, {"offsets": [{"partition": 0, "offset": 0}]})
    more = await client.post(
        "/topics/t/records",
        json={
            "records": [
                {"value": "AAH/", "value_format": "binary", "headers": [{"name": "h", "value": None}]},
                {"key": None, "value": None},
                {"value": "plain", "value_format": "string"},
            ]
        },
    )
    assert more.status_code == 200, more.text
    batches = (await kafka.fetch("t", 0)).records
    first = next(iter_records(batches[: 12 + int.from_bytes(batches[8:12], "big")]))
    assert first == Record(0, now_ms, b"k", '{"a":[1,"ü"]}'.encode(), [("h", b"x")])
    read = (await client.get("/topics/t/partitions/0/records")).json()
    assert read["next_offset"] == read["high_watermark"] == 4
    assert [(each["value"], each.get("value_format")) for each in read["records"]] == [
        ({"a": [1, "ü"]}, "json"),
        ("AAH/", "binary"),
        (None, None),
        ("plain", "string"),
    ]
    assert read["records"][0]["headers"] == [{"name": "h", "value": "x", "value_format": "string"}]


def test_keys_go_where_kafkas_own_producer_sends_them() -> None:
    # Of Kafka's own tests of its Utils.murmur2.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: (murmur2(key) ^ 0x80000000) - 0x80000000 for key in known} == known
    assert partition_of_key(b"abc", 3) == 479470107 % 3
    assert partition_of_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7  # Utils.toPositive, not the absolute value


async def test_keys_choose_partitions_and_keyless_records_of_one_request_stay_together(http: Any) -> None:
    client, kafka, _ = http
    await kafka.create("t", partitions=5)
    keyed: list[dict[str, Any]] = [{"key": f"k{number}", "value": number} for number in range(20)]
    answer = await client.post("/topics/t/records", json={"records": keyed})
    assert [each["partition"] for each in answer.json()["offsets"]] == [
        partition_of_key(each["key"].encode(), 5) for each in keyed
    ]
    used = []
    for _ in range(5):
        told = (await client.post("/topics/t/records", json=[{"value": 1}, {"value": 2}])).json()["offsets"]
        assert told[0]["partition"] == told[1]["partition"]
        used.append(told[0]["partition"])
    assert sorted(used) == [0, 1, 2, 3, 4]


async def test_a_request_that_is_sent_again_with_its_key_is_appended_once(http: Any) -> None:
    client, kafka, node = http
    await kafka.create("t", partitions=3)
    body = [{"value": 1}, {"value": 2}]
    again = [client.post("/topics/t/records", json=body, headers={"Idempotency-Key": "x"}) for _ in range(5)]
    answers = await asyncio.gather(*again)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    partition = answers[0].json()["offsets"][0]["partition"]
    other = await client.post("/topics/t/records", json=[{"value": 2}, {"value": 1}], headers={"Idempotency-Key": "x"})
    assert other.status_code == 422
    assert (await client.get(f"/topics/t/partitions/{partition}/records")).json()["next_offset"] == 2
    longer = await client.post("/topics/t/records", json={"value": 2}, headers={"Idempotency-Key": "y" * 201})
    assert longer.status_code == 400
    records = [{"value": n, "partition": n} for n in range(3)]
    first, second = [
        await client.post("/topics/t/records", json=records, headers={"Idempotency-Key": "z"}) for _ in range(2)
    ]
    assert first.json() == second.json(), "also where it goes to several partitions"
    assert node._replicas.table.leader_of("t", partition).log.end_offset == 3


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"{", 400, "INVALID_REQUEST"),
        (b"[" * 100_000, 400, "INVALID_REQUEST"),
        (b'{"value": NaN}', 400, "INVALID_REQUEST"),
        (b"[]", 400, "INVALID_REQUEST"),
        (b'"text"', 400, "INVALID_REQUEST"),
        (b'{"records": {}}', 400, "INVALID_REQUEST"),
        (b'{"records": [1]}', 400, "INVALID_REQUEST"),
        (b'{"vlaue": 1}', 400, "INVALID_REQUEST"),
        (b'{"value": 1, "value_format": "xml"}', 400, "INVALID_REQUEST"),
        (b'{"value": 1, "value_format": "string"}', 400, "INVALID_REQUEST"),
        (b'{"value": "?", "value_format": "binary"}', 400, "INVALID_REQUEST"),
        (b'{"value": 1, "timestamp": "now"}', 400, "INVALID_REQUEST"),
        (b'{"value": 1, "timestamp": true}', 400, "INVALID_REQUEST"),
        (b'{"value": 1, "headers": {"a": 1}}', 400, "INVALID_REQUEST"),
        (b'{"value": 1, "partition": 1}', 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (b'{"records": [{"value": 1}], "acks": "most"}', 400, "INVALID_REQUEST"),
    ],
)
async def test_wrong_bodies_are_refused_and_nothing_is_appended(
    http: Any, body: bytes, status: int, error: str
) -> None:
    client, kafka, _ = http
    await kafka.create("t")
    answer = await client.post("/topics/t/records", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert (await client.get("/topics/t/partitions/0/records")).json()["high_watermark"] == 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/t/partitions/1/records", 404),
        ("/topics/nowhere/partitions/0/records", 404),
        ("/topics/t/partitions/x/records", 400),
        ("/topics/t/partitions/0/records?offset=7", 416),
        ("/topics/t/partitions/0/records?offset=-1", 400),
        ("/topics/t/partitions/0/records?offset=last", 400),
        ("/topics/t/partitions/0/records?wait_ms=99999999", 400),
        ("/topics/t/partitions/0/records?value_format=xml", 400),
        ("/topics/t/stream?header=x", 400),
        ("/topics/%00%ff/stream", 400),
    ],
)
async def test_wrong_questions_are_refused(http: Any, path: str, status: int) -> None:
    client, kafka, _ = http
    await kafka.create("t")
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_body_of_another_type_is_refused(http: Any) -> None:
    client, _, _ = http
    answer = await client.post("/topics/t/records", content=b'{"value": 1}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415
    types = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = await client.post("/topics/t/records", content=b'{"value": 1}', headers=types)
    assert (answer.status_code, "compressed" in answer.json()["detail"]) == (415, True)


async def test_a_batch_that_is_too_large_for_the_topic_says_so(http: Any) -> None:
    client, kafka, _ = http
    await kafka.create("small", max_message_bytes="1000")
    answer = await client.post("/topics/small/records", json={"value": "x" * 2000})
    assert (answer.status_code, answer.json()["error"]) == (413, "MESSAGE_TOO_LARGE")


async def test_a_long_poll_ends_with_the_record_that_it_waits_for(http: Any) -> None:
    client, kafka, _ = http
    await kafka.create("t")
    waiting = asyncio.create_task(client.get("/topics/t/partitions/0/records?offset=latest&wait_ms=20000"))
    await asyncio.sleep(0.05)
    await kafka.produce("t", b'"here"')
    assert [each["value"] for each in (await waiting).json()["records"]] == ["here"]


async def test_a_client_that_is_gone_in_the_middle_of_a_poll_leaves_nothing_behind(http: Any, dial: Any) -> None:
    _, kafka, node = http
    await kafka.create("t")
    client = await dial(node, b"GET /topics/t/partitions/0/records?wait_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    partition = node._replicas.table.leader_of("t", 0)
    async with asyncio.timeout(SECONDS_MAX):
        while not partition.watchers:
            await asyncio.sleep(0.01)
        client.writer.transport.abort()
        while partition.watchers:
            await asyncio.sleep(0.01)


async def test_compressed_batches_and_offsets_inside_them_are_read(http: Any) -> None:
    client, kafka, _ = http
    await kafka.create("t")
    batch = build_batch([Record(value=b"%d" % number) for number in range(10)], compression=4)
    await kafka.produce("t", batch=batch)
    read = (await client.get("/topics/t/partitions/0/records?offset=7")).json()
    assert [(each["offset"], each["value"]) for each in read["records"]] == [(7, 7), (8, 8), (9, 9)]


def _written_badly() -> tuple[bytearray, bytearray]:
    """Batches of three records that nobody can read: no frame of what their headers say, and offsets out of turn. Their
    checksums are right."""
    frame = build_batch([Record(value=b"%d" % number) for number in range(3)], compression=4)
    frame[HEADER_SIZE:] = b"\xff" * (len(frame) - HEADER_SIZE)
    frame[17:21] = crc32c(bytes(frame[21:])).to_bytes(4, "big")
    return frame, build_batch([Record(offset=offset, value=b"x") for offset in (5, 1, 2)])


@pytest.mark.parametrize("which", [0, 1], ids=["frame", "offsets"])
async def test_a_batch_that_cannot_be_read_is_told_of_with_where_to_go_on(http: Any, which: int) -> None:
    client, kafka, _ = http
    await kafka.create("t")
    for batch in (build_batch([Record(value=b"0")]), _written_badly()[which], build_batch([Record(value=b"4")])):
        await kafka.produce("t", batch=batch)
    path = "/topics/t/partitions/0/records"
    before = (await client.get(path)).json()
    assert ([each["value"] for each in before["records"]], before["next_offset"]) == ([0], 1)
    refused = await client.get(f"{path}?offset=1")
    assert (refused.status_code, refused.json()["error"]) == (500, "CORRUPT_MESSAGE")
    assert "t-0" in refused.json()["detail"]
    assert "at offset 4" in refused.json()["detail"]
    assert [each["value"] for each in (await client.get(f"{path}?offset=4")).json()["records"]] == [4]
    async with asyncio.timeout(SECONDS_MAX), client.stream("GET", "/topics/t/stream") as stream:
        told = [json.loads(line) async for line in stream.aiter_lines()]
    assert (told[0]["value"], told[1]["error"]) == (0, "CORRUPT_MESSAGE")
    url = (await client.post("/groups/g/consumers", json={})).json()["url"]
    await client.put(f"{url}/subscription", json={"topics": ["t"]})
    assert [each["value"] for each in (await client.get(f"{url}/records?wait_ms=9000")).json()["records"]] == [0]
    assert (await client.get(f"{url}/records?wait_ms=9000")).json()["error"] == "CORRUPT_MESSAGE"
    wish = {"positions": [{"topic": "t", "partition": 0, "offset": 4}]}
    assert (await client.put(f"{url}/positions", json=wish)).status_code == 204
    assert [each["value"] for each in (await client.get(f"{url}/records?wait_ms=9000")).json()["records"]] == [4]


async def test_a_stream_gives_what_is_there_and_what_comes(http: Any) -> None:
    client, kafka, _ = http
    await kafka.create("t", partitions=3)
    for number in range(6):
        await kafka.produce("t", b"%d" % number, partition=number % 3)
    got = []
    async with asyncio.timeout(SECONDS_MAX), client.stream("GET", "/topics/t/stream") as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        async for line in answer.aiter_lines():
            got.append(json.loads(line)["value"])
            if len(got) == 6:
                await kafka.produce("t", b"6", partition=1)
            if len(got) == 7:
                break
    assert sorted(got) == list(range(7))


async def test_events_can_be_filtered_and_taken_up_where_they_were_left(http: Any) -> None:
    client, _, _ = http
    await client.post("/topics", json={"name": "t", "partitions": 2})
    records = [{"key": "ab"[number % 2], "value": number, "headers": {"h": "x"}} for number in range(4)]
    await client.post("/topics/t/records", json={"records": records})

    async def events(query: str, count: int, **headers: str) -> tuple[list[Any], str]:
        values, last = [], ""
        wanted = {"Accept": "text/event-stream", **headers}
        async with (
            asyncio.timeout(SECONDS_MAX),
            client.stream("GET", f"/topics/t/stream?{query}", headers=wanted) as answer,
        ):
            assert answer.headers["content-type"] == "text/event-stream"
            async for line in answer.aiter_lines():
                last = line.removeprefix("id: ") if line.startswith("id: ") else last
                if line.startswith("data: "):
                    values.append(json.loads(line.removeprefix("data: "))["value"])
                if len(values) == count:
                    break
        return values, last

    assert (await events("key=a", 2))[0] == [0, 2]
    values, last = await events("header=h:x", 4)
    assert sorted(values) == [0, 1, 2, 3]
    await client.post("/topics/t/records", json={"key": "a", "value": 4})
    assert (await events("", 1, **{"Last-Event-ID": last}))[0] == [4]


async def test_a_reader_that_does_not_read_is_cut_off(start_http: Any, browse: Any, connect: Any, dial: Any) -> None:
    node = await start_http(http_request_timeout_ms="300")
    kafka = await connect(node)
    await kafka.create("t")
    for _ in range(40):
        await kafka.produce("t", b"x" * 500_000)
    client = await dial(node, b"GET /topics/t/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.writer.transport.pause_reading()
    async with asyncio.timeout(SECONDS_MAX):
        while not (connections := list(node._http._listener._connections)) or not connections[0].is_streaming_slowly:
            await asyncio.sleep(0.02)
        while node._http._listener.connection_count:
            await asyncio.sleep(0.02)


async def test_keys_and_headers_of_any_bytes_are_found(http: Any) -> None:
    client, _, _ = http
    keys = (b"\xff", "\ufffd".encode())  # how one who replaces what is not UTF-8 would read the first
    header = {"name": "h", "value": base64.b64encode(b"\xfe").decode(), "value_format": "binary"}
    for number, key in enumerate(keys):
        record = {"key": base64.b64encode(key).decode(), "key_format": "binary", "value": number}
        answer = await client.post("/topics/t/records", json=record | ({} if number else {"headers": [header]}))
        assert answer.status_code == 200
    for query, found in (("key=%FF", [0]), ("key=%EF%BF%BD", [1]), ("header=h:%FE", [0])):
        answer = await client.get(f"/topics/t/partitions/0/records?{query}")
        assert [record["value"] for record in answer.json()["records"]] == found, query


async def test_a_group_whose_name_is_not_utf_8_is_not_taken_for_another(http: Any) -> None:
    client, _, _ = http
    answer = await client.get("/groups/%FF/offsets")
    assert (answer.status_code, answer.json()["detail"]) == (400, "The path is not UTF-8.")


async def test_a_record_that_comes_while_the_start_is_looked_for_is_read(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, _ = http
    await client.post("/topics/t/records", json={"value": "old", "timestamp": 1_000})
    offset_at = Fetching.offset_at

    async def slowly(self: Fetching, topic: str, partition: int, timestamp: int, caller: Any) -> int:
        if timestamp == LATEST and not told:
            told.append(await client.post("/topics/t/records", json={"value": "new", "timestamp": 5_000}))
        return await offset_at(self, topic, partition, timestamp, caller)

    told: list[Any] = []
    monkeypatch.setattr(Fetching, "offset_at", slowly)
    answer = await client.get("/topics/t/partitions/0/records?timestamp=2000")
    assert [record["value"] for record in answer.json()["records"]] == ["new"]


LOST: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADERSHIP_IS_OVER)


@pytest.fixture
def loses_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leadership ends between the append and its acknowledgement."""
    ask, is_first = Calls.ask, [True]

    async def asked(calls: Calls, request: object, *arguments: Any, **named: Any) -> Any:
        answer = await ask(calls, request, *arguments, **named)
        if isinstance(request, ProduceRequest) and is_first:
            is_first.clear()
            (result,) = answer.responses[0].partition_responses
            assert not result.error_code, result.error_message
            (result.error_code, result.error_message), result.base_offset = LOST, -1
        return answer

    monkeypatch.setattr(Calls, "ask", asked)


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("key", [None, "x"])
async def test_what_may_be_appended_already_is_tried_again_only_with_a_key(
    http: Any, timestamps: str, key: str | None, request: pytest.FixtureRequest
) -> None:
    client, kafka, _ = http
    await kafka.create("t", message_timestamp_type=timestamps)
    assert (await client.post("/topics/t/records", json={"value": 0})).status_code == 200
    request.getfixturevalue("loses_its_first_answer")
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await client.post("/topics/t/records", json={"value": 1}, headers=headers)
    if key is None:
        assert answer.status_code == 503, answer.text
    else:
        assert (answer.status_code, answer.json()["offsets"][0]["offset"]) == (200, 1), answer.text
    assert (await client.get("/topics/t/partitions/0/records")).json()["next_offset"] == 2
