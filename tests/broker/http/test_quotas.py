"""HTTP clients are held to the quotas of their users and client ids."""

import asyncio
from typing import Any

import pytest

from tidemark.protocol.messages.alter_client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    EntityData,
    OpData,
)

HELD = {"User-Agent": "held"}
VALUE = "x" * 1000


@pytest.fixture
async def client(start_http: Any, browse: Any, connect: Any) -> Any:
    node = await start_http()
    client = browse(node)
    await client.post("/topics", json={"name": "t", "partitions": 1})
    kafka = await connect(node)

    async def limit(**quotas: float) -> None:
        ops = [OpData(key=key, value=value) for key, value in quotas.items()]
        entity = [EntityData(entity_type="client-id", entity_name="held")]
        answer = await kafka.ask(AlterClientQuotasRequest(entries=[AlterationData(entity=entity, ops=ops)]))
        assert answer.entries[0].error_code == 0

    return client, limit


async def test_who_writes_too_much_is_told_when_to_come_back(client: Any) -> None:
    http, limit = client
    await limit(producer_byte_rate=5000)
    first = await http.post("/topics/t/records", json=[{"value": VALUE}] * 8, headers=HELD)
    assert first.status_code == 200, "it takes what there is, and more: that is paid back"
    refused = await http.post("/topics/t/records", json={"value": 1}, headers=HELD)
    assert (refused.status_code, refused.json()["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await http.get("/topics/t/partitions/0/records", headers=HELD)).status_code == 200, "reading is another"
    assert (await http.post("/topics/t/records", json={"value": 1})).status_code == 200, "and so is another client"
    read = (await http.get("/topics/t/partitions/0/records")).json()
    assert read["next_offset"] == 9, "what was refused was not done"


async def test_who_reads_too_much_waits_in_a_stream_and_is_refused_elsewhere(client: Any) -> None:
    http, limit = client
    await http.post("/topics/t/records", json=[{"value": VALUE} for _ in range(10)])
    await limit(consumer_byte_rate=8000)
    assert (await http.get("/topics/t/partitions/0/records", headers=HELD)).status_code == 200
    refused = await http.get("/topics/t/partitions/0/records", headers=HELD)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    async with http.stream("GET", "/topics/t/stream", headers=HELD) as stream, asyncio.timeout(10):
        lines = stream.aiter_lines()
        assert [await anext(lines) for _ in range(10)], "late, but it comes"


async def test_time_of_the_event_loop_counts(client: Any) -> None:
    http, limit = client
    await limit(request_percentage=0.01)
    statuses = [(await http.get("/topics", headers=HELD)).status_code for _ in range(30)]
    assert (statuses[0], statuses[-1]) == (200, 429)
    assert (await http.get("/livez", headers=HELD)).status_code == 200
    assert (await http.get("/topics")).status_code == 200
