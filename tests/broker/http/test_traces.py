"""Spans of HTTP requests, as a collector gets them, and the traces of the records that they produce."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.server.span_collector import collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FOLLOWED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1"}
OWN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def headers_of(client: Any) -> list[dict[str, str]]:
    read = await client.get("/topics/t/partitions/0/records")
    return [
        {header["name"]: header["value"] for header in record.get("headers", [])} for record in read.json()["records"]
    ]


async def test_a_request_is_a_span_of_its_clients_trace_and_so_are_the_records_that_it_produces(
    start_http: Any, browse: Any
) -> None:
    with collector() as (address, spans):
        node = await start_http(tidemark_traces_otlp_endpoint=address)
        client = browse(node)
        records = [{"value": 1}, {"value": 2, "headers": {"traceparent": OWN}}, {"value": 3, "headers": {"a": "b"}}]
        assert (await client.post("/topics/t/records", json=records, headers=FOLLOWED)).status_code == 200
        assert (await client.post("/topics/t/records", json={"value": 4})).status_code == 200
        assert (await client.post("/topics/t/records", json={"values": 4}, headers=FOLLOWED)).status_code == 400
        assert (await client.get("/livez")).status_code == 200
        first, second, third, fourth = await headers_of(client)
        await node.stop()
    produced, apart, refused = (span for span in spans if span.name == "POST /topics/{topic}/records")
    assert (produced.trace_id.hex(), produced.parent_span_id.hex()) == (TRACE, PARENT)
    told = {each.key: each.value.string_value or each.value.int_value for each in produced.attributes}
    assert (told["http.route"], told["http.response.status_code"]) == ("/topics/{topic}/records", 200)
    assert told["messaging.destination.name"] == "t"
    of_span = {"traceparent": f"00-{TRACE}-{produced.span_id.hex()}-01", "tracestate": "shop=1"}
    assert (first, second, third) == (of_span, {"traceparent": OWN}, {"a": "b"} | of_span)
    assert fourth == {}, "whose client gave no trace"
    assert apart.trace_id.hex() != TRACE
    assert {each.key: each.value.int_value for each in refused.attributes}["http.response.status_code"] == 400
    assert not [span for span in spans if "livez" in span.name]


@pytest.mark.parametrize("parent", ["00-zz-1-01", f"00-{'0' * 32}-{PARENT}-01", "x" * 20_000])
async def test_a_trace_that_makes_no_sense_is_none(start_http: Any, browse: Any, parent: str) -> None:
    with collector() as (address, spans):
        node = await start_http(tidemark_traces_otlp_endpoint=address)
        client = browse(node)
        sent = await client.post("/topics/t/records", json={"value": 1}, headers={"traceparent": parent})
        assert sent.status_code == 200
        assert await headers_of(client) == [{}]
        await node.stop()
    assert all(not span.parent_span_id for span in spans)


async def test_a_request_that_is_not_traced_passes_its_trace_on(start_http: Any, browse: Any) -> None:
    with collector() as (address, spans):
        node = await start_http(tidemark_traces_otlp_endpoint=address, tidemark_traces_sample_ratio="0")
        client = browse(node)
        assert (await client.post("/topics/t/records", json={"value": 1}, headers=FOLLOWED)).status_code == 200
        assert await headers_of(client) == [FOLLOWED]
        await node.stop()
    assert spans == []
