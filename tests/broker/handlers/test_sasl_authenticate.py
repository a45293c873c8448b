from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_token_outside_of_a_login_is_refused(client: Any, version: int) -> None:
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret"), version)
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
