from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener


async def add(client: Any, voter_id: int, version: int = 1, **fields: Any) -> Any:
    known: dict[str, Any] = {"voter_id": voter_id, "timeout_ms": 50}
    return await client.ask(AddRaftVoterRequest(**known | fields), version)


async def test_a_voter_is_not_added_twice(cluster: Any) -> None:
    for version in (0, 1):
        answer = await add(cluster.client, 1, version)
        assert (answer.error_code, "1" in answer.error_message) == (ErrorCode.DUPLICATE_VOTER, True)


async def test_an_unknown_node_must_say_where_it_is(cluster: Any) -> None:
    for version in (0, 1):
        answer = await add(cluster.client, 9, version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert cluster.members == {1}


async def test_a_node_that_does_not_catch_up_gets_no_vote_and_follows_on(cluster: Any) -> None:
    listener = Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    answer = await add(cluster.client, 9, listeners=[listener])
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (cluster.configuration.voters, cluster.configuration.learners) == ((1,), (9,))


async def test_the_cluster_may_be_named_and_must_be_this_one(cluster: Any) -> None:
    for version in (0, 1):
        wrong = await add(cluster.client, 1, version, cluster_id="another")
        assert wrong.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        for right in (cluster.image.cluster_id, None, ""):
            answer = await add(cluster.client, 1, version, cluster_id=right)
            assert answer.error_code == ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize("version", [0, 1])
async def test_a_broker_without_a_controller_listener_is_a_cluster_of_its_own(idle: Any, version: int) -> None:
    answer = await add(idle, 9, version)
    assert (answer.error_code, "controller listener" in answer.error_message) == (ErrorCode.INVALID_REQUEST, True)
