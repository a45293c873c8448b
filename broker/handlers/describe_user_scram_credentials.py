"""DescribeUserScramCredentials: which SCRAM mechanisms users have credentials for (KIP-554).

No credential can be set yet (AlterUserScramCredentials is not served), so nobody has one: a user that is named is not
found, and there is nobody else to list. Kafka's ConfigCommand asks this whenever it describes users.
"""

from __future__ import annotations

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import repeated
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, _call: Call
) -> DescribeUserScramCredentialsResponse:
    names = [each.name for each in request.users or ()]
    twice = repeated(names)
    return DescribeUserScramCredentialsResponse(
        results=[_answer(name, is_repeated=name in twice) for name in dict.fromkeys(names)]
    )


def _answer(name: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "The user is named twice in one request."
    else:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, "The user has no SCRAM credentials."
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
