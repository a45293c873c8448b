"""DescribeClientUsage (our own): bytes produced and fetched, time used and throttling, by user and client id.

It serves `tidemark top`. The figures count up, and come with the broker's clock: who asks twice has rates. They are of
this broker alone. Counting costs something, so it begins when somebody asks and ends half a minute after the last time.

v0: the only one
"""

from __future__ import annotations

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.quotas.service import Quotas
from tidemark.environment import monotonic
from tidemark.protocol.messages.describe_client_usage import (
    ClientUsage,
    DescribeClientUsageRequest,
    DescribeClientUsageResponse,
)


@handles(DescribeClientUsageRequest, DescribeClientUsageResponse)
def describe_client_usage(
    _request: DescribeClientUsageRequest, _call: Call, *, quotas: Quotas
) -> Job[DescribeClientUsageResponse]:
    quotas.watch_usage()
    response = DescribeClientUsageResponse(at_seconds=monotonic())
    for usage in quotas.usage():
        response.clients.append(
            ClientUsage(
                user=usage.user,
                client_id=usage.client_id,
                produced_bytes=usage.produced_bytes,
                fetched_bytes=usage.fetched_bytes,
                request_seconds=usage.request_seconds,
                throttled_requests=usage.throttled,
                throttle_seconds=usage.throttle_seconds,
            )
        )
        yield
    return response
