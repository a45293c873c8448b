"""However large a request or its answer is: the event loop is never held for long."""

import asyncio
import gc
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.server.loop_watch import KEPT_SECONDS_MAX, LoopWatch
from tidemark.broker.core.garbage import collect_rarely
from tidemark.broker.http.decoding import Decoder
from tidemark.broker.http.fetching import Fetching
from tidemark.protocol.compression import GZIP, ZSTD
from tidemark.protocol.records import Record, build_batch

JSON = {"Content-Type": "application/json"}
WIDE = "[" + "[]," * 300_000 + "[]]"


@pytest.fixture
async def http(start_http: Any, browse: Any, connect: Any) -> Any:
    node = await start_http(http_request_max_bytes=str(4 << 20), message_max_bytes=str(8 << 20))
    kafka = await connect(node)
    await kafka.create("t")
    await kafka.create("warm")
    client = browse(node)
    await client.post("/topics/warm/records", json={"value": 1})  # what these need is loaded with the first of them
    await client.get("/topics/warm/partitions/0/records")
    return client, kafka


@pytest.fixture
def watch(http: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopWatch]:
    before = gc.get_threshold()
    collect_rarely()
    yield LoopWatch(monkeypatch)
    gc.set_threshold(*before)
    gc.unfreeze()


BODIES: dict[str, Callable[[], str]] = {
    "wide body": lambda: WIDE,
    "wide value": lambda: json.dumps({"value": json.loads(WIDE)}),
    "many records": lambda: json.dumps(
        [{"key": "k" * 20, "value": {"a": [1, 2, 3]}, "headers": {"h": "x"}} for _ in range(10_000)]
    ),
    "long key": lambda: json.dumps({"key": "k" * 1_500_000, "value": 1}),
    "long text": lambda: json.dumps({"value": "é" * 600_000}),
    "wide object": lambda: '{"value": {' + ",".join(f'"{n}": [{n}.5]' for n in range(60_000)) + "}}",
    "deep": lambda: '{"records": [' * 5000,
    "space": lambda: " " * 4_000_000 + "1",
    "many headers": lambda: '{"value": 1, "headers": {' + ",".join(f'"{n}": ""' for n in range(300_000)) + "}}",
    "wide acks": lambda: '{"records": [{"value": 1}], "acks": ' + WIDE + "}",
    "many fields": lambda: "{" + ",".join(f'"{n}": 1' for n in range(300_000)) + "}",
}


@pytest.fixture(params=BODIES)
def body(request: pytest.FixtureRequest) -> str:
    """Made when it is sent, or every worker would make megabytes to know the names of the tests."""
    return BODIES[request.param]()


async def test_a_large_body_is_read_in_slices(http: Any, watch: LoopWatch, body: str) -> None:
    client, _ = http
    answer = await client.post("/topics/t/records", content=body, headers=JSON)
    assert answer.status_code in (200, 400), answer.text[:200]
    longest, what = watch.take()
    assert longest < KEPT_SECONDS_MAX, what


@pytest.mark.parametrize("name", ["wide", "compressed", "binary", "headers"])
async def test_large_records_are_told_in_slices(http: Any, watch: LoopWatch, name: str) -> None:
    client, kafka = http
    values = {"wide": WIDE.encode(), "compressed": b"x" * 1_000_000, "binary": random.Random(1).randbytes(3_000_000)}
    count, compression = (25, GZIP) if name == "compressed" else (1, 0)
    headers = [("", None)] * 250_000 if name == "headers" else []  # half a megabyte of them
    record = Record(value=values.get(name), headers=headers)
    await kafka.produce("t", batch=build_batch([record] * count, compression=compression))
    watch.take()  # so far it was the test that took long
    offset = 0
    while offset < count:
        read = await client.get(f"/topics/t/partitions/0/records?offset={offset}&max_bytes=4000000")
        assert len(read.content) < 20 << 20, "an answer has its limit, whatever a batch grows to"
        found = re.search(rb'"next_offset":([0-9]+)', read.content[-100:])  # not all of it: this is the same loop
        assert found is not None
        offset = int(found[1])
    longest, what = watch.take()
    assert longest < KEPT_SECONDS_MAX, what


async def test_many_readers_of_batches_that_grow_do_not_fill_the_memory(http: Any) -> None:
    client, kafka = http
    await kafka.produce("t", batch=build_batch([Record(value=b"x" * 1000)] * 5_000, compression=ZSTD))
    reads = [client.get("/topics/t/partitions/0/records?offset=4990") for _ in range(20)]
    for read in await asyncio.gather(*reads):
        assert len(read.json()["records"]) == 10


async def test_of_many_that_wait_for_one_record_few_go_on_in_each_turn(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, kafka = http
    turn, went_on = 0, Counter[int]()
    decoded, read, reads = Decoder.decoded, Fetching.read, 0

    async def noted(self: Decoder, data: Any, *args: Any, **more: Any) -> Any:
        went_on[turn] += bool(data.records)
        return await decoded(self, data, *args, **more)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def counted(self: Fetching, *args: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(self, *args, **more)

    monkeypatch.setattr(Decoder, "decoded", noted)
    monkeypatch.setattr(Fetching, "read", counted)
    waiting = [asyncio.create_task(client.get("/topics/t/partitions/0/records?wait_ms=20000")) for _ in range(50)]
    while reads < 50:
        await asyncio.sleep(0.01)
    counting = asyncio.create_task(count_turns())
    await kafka.produce("t", b"x")
    answers = await asyncio.gather(*waiting)
    counting.cancel()
    assert [len(answer.json()["records"]) for answer in answers] == [1] * 50
    assert max(went_on.values()) <= 2, went_on
