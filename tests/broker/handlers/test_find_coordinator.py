from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2
TYPES_FROM = 1
MANY_FROM = 4


async def find(client: Any, version: int, key: str, kind: int = GROUP) -> Any:
    """The one coordinator asked for, in the form of any version."""
    if version < MANY_FROM:
        return await client.ask(FindCoordinatorRequest(key=key, key_type=kind), version)
    answer = await client.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), version)
    (found,) = answer.coordinators
    assert found.key == key
    return found


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
async def test_the_coordinator_is_returned_with_its_address(
    groups: Any, txn: Any, shared_broker: Any, version: int, kind: int
) -> None:
    found = await find(groups.client, version, "any", kind)
    assert found.error_code == ErrorCode.NONE
    assert (found.host, found.port) == shared_broker.address
    assert found.node_id >= 0


@pytest.mark.parametrize("version", range(MANY_FROM, 7))
async def test_many_keys_are_answered_one_by_one_and_none_by_nothing(groups: Any, version: int) -> None:
    answer = await groups.client.ask(FindCoordinatorRequest(coordinator_keys=["a", "b", "c"]), version)
    assert [each.key for each in answer.coordinators] == ["a", "b", "c"]
    assert {each.error_code for each in answer.coordinators} == {ErrorCode.NONE}
    assert (await groups.client.ask(FindCoordinatorRequest(coordinator_keys=[]), version)).coordinators == []


@pytest.mark.parametrize("version", range(TYPES_FROM, 7))
async def test_a_type_that_does_not_exist_is_refused(shared: Any, version: int) -> None:
    found = await find(shared, version, "any", 77)
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert (found.node_id, found.host, found.port) == (-1, "", -1)


@pytest.mark.parametrize("version", [5, 6])
async def test_there_are_no_share_groups(idle: Any, version: int) -> None:
    assert (await find(idle, version, "group:topic:0", SHARE)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
async def test_who_asks_first_makes_the_internal_topic(client: Any, node: Any, kind: int) -> None:
    assert not node._store.image.topics
    assert (await find(client, 6, "any", kind)).error_code == ErrorCode.NONE
    (created,) = node._store.image.topics.values()
    assert created.name == ("__transaction_state" if kind == TRANSACTION else "__consumer_offsets")
    assert len(created.partitions) == 2


async def test_the_coordinator_may_be_another_broker(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("__consumer_offsets", [2])
    found = await find(cluster.client, 6, "any")
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 2)
    assert found.port == cluster.image.brokers[2].endpoints["PLAINTEXT"].port


async def test_there_is_no_coordinator_while_the_partition_has_no_leader(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("__consumer_offsets", [2])
    await cluster.heartbeat(2, want_fence=True)
    for version in (3, 6):
        found = await find(cluster.client, version, "any")
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
