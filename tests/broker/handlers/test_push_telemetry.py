"""Where nobody could see what is pushed. What else it does: tests/broker/telemetry."""

from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.push_telemetry import PushTelemetryRequest


async def test_without_anybody_who_sees_it_nothing_is_taken(shared: Any, version: int) -> None:
    answer = await shared.ask(PushTelemetryRequest(client_instance_id=bytes(15) + b"x", metrics=b"x" * 100), version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
