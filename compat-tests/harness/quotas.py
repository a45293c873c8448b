"""Quotas of a client id, set and taken away; and whether a broker has held it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.protocol.messages.alter_client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidemark.protocol.messages.describe_client_usage import DescribeClientUsageRequest, DescribeClientUsageResponse
from tidemark.wire_client import BrokerConnections


@contextmanager
def _brokers(bootstrap: str) -> Iterator[BrokerConnections]:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    brokers = BrokerConnections([(host, int(port))], client_id="test", timeout_s=20)
    try:
        yield brokers
    finally:
        brokers.close()


def set_quotas(bootstrap: str, client_id: str, **quotas: float | None) -> None:
    """None takes one away."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    entry = AlterationData(entity=[EntityData(entity_type="client-id", entity_name=client_id)], ops=ops)
    with _brokers(bootstrap) as brokers:
        answer = brokers.ask_any(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
    assert [each.error_code for each in answer.entries] == [0]


def throttled_requests(bootstrap: str) -> dict[str, int]:
    """By client id: answers that told it to wait."""
    with _brokers(bootstrap) as brokers:
        answer = brokers.ask_any(DescribeClientUsageRequest(), DescribeClientUsageResponse, 0)
    return {each.client_id: each.throttled_requests for each in answer.clients}
