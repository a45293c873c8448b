from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.unregister_broker import UnregisterBrokerRequest


async def unregister(client: Any, broker_id: int) -> int:
    return int((await client.ask(UnregisterBrokerRequest(broker_id=broker_id))).error_code)


async def test_a_broker_that_will_not_come_back_is_forgotten(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2, 1])
    assert await unregister(cluster.client, 2) == ErrorCode.NONE
    assert set(cluster.image.brokers) == {1}
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    assert await unregister(cluster.client, 2) == ErrorCode.BROKER_ID_NOT_REGISTERED
    stale = await cluster.heartbeat(2)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_its_place_in_the_quorum_goes_too_unless_it_has_a_vote(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.join_quorum(2)
    assert cluster.members == {1, 2}
    assert await unregister(cluster.client, 2) == ErrorCode.NONE
    assert cluster.members == {1}


@pytest.mark.parametrize("broker_id", [4711, -1])
async def test_a_broker_that_does_not_exist(shared: Any, broker_id: int) -> None:
    answer = await shared.ask(UnregisterBrokerRequest(broker_id=broker_id))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message
