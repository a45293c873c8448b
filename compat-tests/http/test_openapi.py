"""Every operation of the OpenAPI document, called by schemathesis: good wishes are granted, bad ones refused, and each
answer is as the document says."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

EXAMPLES_MAX = 6
WAIT_MS_MAX = 20
PARTITIONS_MAX = 3  # 10,000 would be granted, too
# What a schema cannot say: which settings there are, how many brokers, what was committed, whose turn it is.
REFUSED_FOR_OTHER_REASONS = {
    "produce",
    "fetch",
    "create_topic",
    "add_partitions",
    "alter_topic_configs",
    "alter_broker_configs",
    "reset_offsets",
    "subscribe",
    "poll",
    "commit",
    "seek",
}


@pytest.fixture(scope="session")
def consumer_id(http_broker) -> str:
    with httpx.Client(base_url=http_broker.urls["HTTP"], trust_env=False) as client:
        client.post("/topics", json={"name": "known", "partitions": 2}).raise_for_status()
        client.post("/topics/known/records", json=[{"key": "k", "value": 1}]).raise_for_status()
        made = client.post("/groups/known/consumers", json={"auto_offset_reset": "latest"})
        return str(made.json()["id"])


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
def test_every_operation_does_what_its_document_says(http_broker, consumer_id, mode):
    document = schemathesis.openapi.from_url(f"{http_broker.urls['HTTP']}/openapi.json")
    operations = [each.ok() for each in document.get_all_operations()]
    assert len(operations) >= 28
    tried = 0
    for operation in operations:
        strategy = None if operation.definition.raw["operationId"] == "stream" else strategy_of(operation, mode)
        if strategy is not None:  # a stream does not end, and what has no parameters cannot be called wrongly
            check(operation, strategy, consumer_id)
            tried += 1
    assert tried >= 12


def strategy_of(operation, mode):
    has_input = operation.body or operation.query
    return operation.as_strategy(generation_mode=mode) if mode.is_positive or has_input else None


def check(operation, strategy, consumer_id):
    operation_id = operation.definition.raw["operationId"]
    known = {"topic": "known", "group": "known", "consumer": consumer_id, "broker": 0, "partition": 0}
    excluded = [positive_data_acceptance] if operation_id in REFUSED_FOR_OTHER_REASONS else []

    @settings(
        max_examples=EXAMPLES_MAX,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, is_known=st.booleans())
    def call(case, is_known):
        if is_known and operation_id not in ("delete_consumer", "delete_topic") and case.path_parameters:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        wait_ms = (case.query or {}).get("wait_ms")
        if isinstance(wait_ms, int) and wait_ms > WAIT_MS_MAX:
            case.query["wait_ms"] = WAIT_MS_MAX
        if isinstance(case.body, dict) and isinstance(case.body.get("partitions"), int):
            case.body["partitions"] = min(case.body["partitions"], PARTITIONS_MAX)
        case.call_and_validate(excluded_checks=excluded, timeout=20)

    call()
