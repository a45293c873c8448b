from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest


async def remove(client: Any, voter_id: int, **fields: Any) -> Any:
    return await client.ask(RemoveRaftVoterRequest(voter_id=voter_id, **fields))


async def test_a_node_without_a_vote_cannot_lose_it(cluster: Any) -> None:
    await cluster.join_quorum(2)
    for node_id in (2, 9, -1):
        answer = await remove(cluster.client, node_id)
        assert (answer.error_code, str(node_id) in answer.error_message) == (ErrorCode.VOTER_NOT_FOUND, True)
    assert cluster.members == {1, 2}


async def test_the_last_voter_stays(cluster: Any) -> None:
    answer = await remove(cluster.client, 1)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert cluster.configuration.voters == (1,)


async def test_the_cluster_may_be_named_and_must_be_this_one(cluster: Any) -> None:
    assert (await remove(cluster.client, 9, cluster_id="another")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    named = await remove(cluster.client, 9, cluster_id=cluster.image.cluster_id)
    assert named.error_code == ErrorCode.VOTER_NOT_FOUND


async def test_a_broker_without_a_controller_listener_is_a_cluster_of_its_own(idle: Any) -> None:
    answer = await remove(idle, 1)
    assert (answer.error_code, "controller listener" in answer.error_message) == (ErrorCode.INVALID_REQUEST, True)
