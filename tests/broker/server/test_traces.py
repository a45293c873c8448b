"""Spans of requests, as a collector gets them."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka import Producer

import tidemark
from tests.broker.server.span_collector import collector
from tidemark.broker.config import ConfigError

ONE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"


def produce(bootstrap: str, *traces: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "log_level": 0})
    for trace in traces:
        producer.produce("t", b"x", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert producer.flush(30) == 0


def test_the_span_of_a_produce_belongs_to_the_trace_of_its_records_or_links_to_several() -> None:
    with collector() as (address, spans):
        with tidemark.embedded(**{"tidemark.traces.otlp.endpoint": address}) as broker:
            produce(broker.bootstrap, ONE)
            produce(broker.bootstrap, ONE, OTHER, "no-trace")
        first, second = (span for span in spans if span.name == "Produce")
        assert first.trace_id.hex() == ONE
        assert first.parent_span_id.hex() == "00f067aa0ba902b7"
        assert {link.trace_id.hex() for link in second.links} == {ONE, OTHER}
        told = {each.key: each.value.string_value for each in first.attributes}
        assert (told["messaging.system"], told["messaging.destination.name"]) == ("kafka", "t")
        assert {"Metadata", "ApiVersions"} <= {span.name for span in spans}


def test_nothing_is_traced_at_a_ratio_of_nothing() -> None:
    with collector() as (address, spans):
        settings = {"tidemark.traces.otlp.endpoint": address, "tidemark.traces.sample.ratio": "0"}
        with tidemark.embedded(**settings) as broker:
            produce(broker.bootstrap, ONE)
        assert spans == []


def test_without_its_packages_a_start_says_which_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tidemark.broker.server.traces", None)
    with (
        pytest.raises(ConfigError, match=r"tidemark\[traces\]"),
        tidemark.embedded(**{"tidemark.traces.otlp.endpoint": "http://127.0.0.1:1/"}),
    ):
        pass


@pytest.mark.parametrize("key", ["tidemark.traces.otlp.endpoint", "tidemark.telemetry.otlp.endpoint"])
@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:4318", "http://", "http://[", "http://a:x", "grpc://a:4317"]
)
def test_an_address_that_is_none_ends_the_start(key: str, address: str) -> None:
    with pytest.raises(ConfigError, match="is not like http://host:4318"), tidemark.embedded(**{key: address}):
        pass


def test_an_address_without_a_path_gets_the_usual_one() -> None:
    with collector() as (address, spans):
        with tidemark.embedded(**{"tidemark.traces.otlp.endpoint": address.removesuffix("/v1/traces")}) as broker:
            produce(broker.bootstrap, ONE)
        assert "Produce" in {span.name for span in spans}
