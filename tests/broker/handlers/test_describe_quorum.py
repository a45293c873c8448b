from __future__ import annotations

import time
from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

TIMESTAMPS_FROM = 1
NODES_FROM = 2
METADATA_TOPIC = "__cluster_metadata"


def request(topic: str = METADATA_TOPIC, index: int = 0) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=index)])]
    )


async def test_a_quorum_of_one_is_its_own_leader(shared: Any, topic: str, version: int) -> None:
    answer = await shared.ask(request(), version)
    assert answer.error_code == ErrorCode.NONE
    (told,) = answer.topics[0].partitions
    assert (told.error_code, told.observers) == (0, [])
    assert told.leader_epoch > 0
    (voter,) = told.current_voters
    assert voter.replica_id == told.leader_id
    assert voter.log_end_offset >= told.high_watermark > 0
    if version >= TIMESTAMPS_FROM:
        now_ms = time.time() * 1000
        assert abs(now_ms - voter.last_caught_up_timestamp) < 60_000
    else:
        assert voter.last_caught_up_timestamp == -1


async def test_there_is_one_partition_of_metadata(shared: Any, topic: str, version: int) -> None:
    for wrong in (request(topic), request(index=1)):
        (told,) = (await shared.ask(wrong, version)).topics[0].partitions
        assert (told.error_code, told.current_voters) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


async def test_the_addresses_of_the_voters_are_returned_from_version_2_on(cluster: Any) -> None:
    for version in range(3):
        for client in (cluster.client, cluster.controller):
            answer = await client.ask(request(), version)
            told = [(node.node_id, each.host, each.port) for node in answer.nodes for each in node.listeners]
            assert told == ([(1, *cluster.address)] if version >= NODES_FROM else [])


async def test_nodes_without_a_vote_are_observers(cluster: Any) -> None:
    await cluster.join_quorum(2)
    for version in range(3):
        (told,) = (await cluster.client.ask(request(), version)).topics[0].partitions
        assert [each.replica_id for each in told.current_voters] == [1]
        (observer,) = told.observers
        assert (observer.replica_id, observer.last_caught_up_timestamp) == (2, -1)


async def test_nothing_is_asked_for_by_an_empty_list(shared: Any, version: int) -> None:
    assert (await shared.ask(DescribeQuorumRequest(), version)).topics == []
