from __future__ import annotations

from typing import Any

from tidemark.protocol.messages.describe_client_usage import DescribeClientUsageRequest


async def usage(client: Any) -> dict[tuple[str, str], Any]:
    answer = await client.ask(DescribeClientUsageRequest())
    assert answer.error_code == 0
    return {(each.user, each.client_id): each for each in answer.clients}


async def test_what_a_client_uses_is_counted_from_the_first_question_on(client: Any) -> None:
    await client.create("t")
    await client.produce("t", bytes(1000))
    assert await usage(client) == {}
    await client.produce("t", bytes(1000))
    await client.fetch("t", 0)
    mine = (await usage(client))["ANONYMOUS", "test"]
    assert 1000 < mine.produced_bytes < 1300
    assert 2000 < mine.fetched_bytes < 2400
    assert mine.request_seconds > 0
    assert (mine.throttled_requests, mine.throttle_seconds) == (0, 0)
