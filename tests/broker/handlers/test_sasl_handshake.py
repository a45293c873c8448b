from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest


@pytest.mark.parametrize("version", [0, 1])
async def test_there_is_no_login_where_none_is_asked_for(client: Any, version: int) -> None:
    answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
