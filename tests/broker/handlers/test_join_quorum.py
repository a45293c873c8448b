from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode


async def test_a_node_follows_the_metadata_without_a_vote_and_learns_the_leader(cluster: Any) -> None:
    for _ in range(2):  # a repeated request is one of the same node
        answer = await cluster.join_quorum(2, port=4711)
        assert (answer.error_code, answer.leader_id) == (0, 1)
        assert (answer.leader_host, answer.leader_port) == cluster.address
        assert (cluster.configuration.voters, cluster.configuration.learners) == ((1,), (2,))


async def test_a_node_that_has_moved_is_found_at_its_new_address(cluster: Any) -> None:
    await cluster.join_quorum(2, port=4711)
    assert (await cluster.join_quorum(2, port=4712)).error_code == 0
    assert cluster.node._cluster.quorum.addresses()[2].port == 4712


async def test_a_node_of_another_cluster_is_refused(cluster: Any) -> None:
    answer = await cluster.join_quorum(2, cluster_id="another")
    assert (answer.error_code, answer.leader_id) == (ErrorCode.INCONSISTENT_CLUSTER_ID, -1)
    assert cluster.members == {1}


async def test_a_new_node_need_not_know_the_cluster(cluster: Any) -> None:
    assert (await cluster.join_quorum(2, cluster_id="")).error_code == 0
    assert cluster.members == {1, 2}


async def test_no_node_takes_a_voters_place_with_another_disk(cluster: Any) -> None:
    before = cluster.configuration
    answer = await cluster.join_quorum(1, port=4711, directory_id=b"x" * 16)
    if any(before.member(1).directory_id):
        assert answer.error_code == ErrorCode.INVALID_VOTER_KEY
        assert cluster.configuration == before


async def test_a_node_that_does_not_lead_names_the_one_that_does(cluster: Any, monkeypatch: Any) -> None:
    store = type(cluster.node._store)
    monkeypatch.setattr(store, "is_controller", property(lambda _self: False))
    answer = await cluster.join_quorum(2)
    assert (answer.error_code, answer.leader_id) == (ErrorCode.NOT_CONTROLLER, 1)
    assert (answer.leader_host, answer.leader_port) == cluster.address
    monkeypatch.undo()
    assert cluster.members == {1}
