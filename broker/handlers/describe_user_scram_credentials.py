"""DescribeUserScramCredentials: which users have SCRAM credentials, and of which kind (KIP-554).

Kafka's ConfigCommand asks this whenever it describes users. Nothing that a password could be guessed from is told.
"""

from __future__ import annotations

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.metadata.credentials import Credentials
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, _call: Call, *, cluster: ClusterView
) -> Job[DescribeUserScramCredentialsResponse]:
    credentials = cluster.image.credentials
    named: dict[str, bool] = {}  # and whether it is repeated
    for each in request.users or ():
        named[each.name] = each.name in named
        yield
    if not named:
        named = dict.fromkeys(credentials.scram, False)
    results = yield from in_slices(lambda name: _answer(credentials, name, is_repeated=named[name]), named)
    return DescribeUserScramCredentialsResponse(results=results)


def _answer(credentials: Credentials, name: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    answer = DescribeUserScramCredentialsResult(user=name)
    if is_repeated:
        answer.error_code = ErrorCode.DUPLICATE_RESOURCE
        answer.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif name not in credentials.scram:
        answer.error_code = ErrorCode.RESOURCE_NOT_FOUND
        answer.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        answer.credential_infos = [
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(credentials.scram[name].items())
        ]
    return answer
