"""DescribeUserScramCredentials: which users have SCRAM credentials, and of which kind (KIP-554).

Kafka's ConfigCommand asks this whenever it describes users. Nothing that a password could be guessed from is told.
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import find_repeated
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
    if not request.users:
        results = yield from in_slices(partial(_answer, credentials), credentials.scram)
        return DescribeUserScramCredentialsResponse(results=results)
    twice = yield from find_repeated(each.name for each in request.users)
    refused: set[str] = set()
    results = []
    for each in request.users:
        if each.name not in twice:
            results.append(_answer(credentials, each.name))
        elif each.name not in refused:
            refused.add(each.name)
            results.append(_refusal(each.name))
        yield
    return DescribeUserScramCredentialsResponse(results=results)


def _refusal(name: str) -> DescribeUserScramCredentialsResult:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)


def _answer(credentials: Credentials, name: str) -> DescribeUserScramCredentialsResult:
    answer = DescribeUserScramCredentialsResult(user=name)
    if name not in credentials.scram:
        answer.error_code = ErrorCode.RESOURCE_NOT_FOUND
        answer.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        answer.credential_infos = [
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(credentials.scram[name].items())
        ]
    return answer
