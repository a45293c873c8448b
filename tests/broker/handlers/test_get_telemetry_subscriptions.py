"""Where nobody could see what is pushed. What else it does: tests/broker/telemetry."""

from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest


async def test_without_anybody_who_sees_it_a_client_is_asked_for_nothing(shared: Any, version: int) -> None:
    answer = await shared.ask(GetTelemetrySubscriptionsRequest(), version)
    assert (answer.error_code, answer.requested_metrics) == (ErrorCode.UNSUPPORTED_VERSION, [])
