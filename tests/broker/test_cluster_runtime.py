"""Three nodes in one event loop, over real sockets: a quorum, a controller, and brokers that pass requests on to it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages import add_raft_voter as add
from tidemark.protocol.messages import remove_raft_voter as remove
from tidemark.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tidemark.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidemark.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def topic(name: str, *, partitions: int = 3, factor: int = 3) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


async def test_a_topic_is_created_over_any_node_and_seen_where_it_was_created(nodes: Any, ask: Any) -> None:
    await nodes.start()
    for node_id in nodes.voters:
        answer = await ask(node_id, topic(f"t{node_id}"), CreateTopicsResponse, 7)
        assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{node_id}")])
        seen: MetadataResponse = await ask(node_id, wanted, MetadataResponse, 12)
        assert len(seen.brokers) == 3
        assert sorted(each.leader_id for each in seen.topics[0].partitions) == [1, 2, 3]
        assert all(sorted(each.isr_nodes) == [1, 2, 3] for each in seen.topics[0].partitions)


async def test_all_nodes_have_one_cluster_id(nodes: Any) -> None:
    await nodes.start()
    ids = {
        (nodes.path / str(node_id) / "meta.properties").read_text().split("cluster.id=")[1][:22]
        for node_id in (1, 2, 3)
    }
    assert ids == {nodes.image(1).cluster_id}


async def test_a_node_of_another_cluster_is_refused(nodes: Any, tmp_path: Path) -> None:
    await nodes.start(1, 2)
    with pytest.raises(RuntimeError, match="INCONSISTENT_CLUSTER_ID"):
        await nodes.start(3, cluster_id="another")
    await nodes.stop(3)


async def test_leaders_move_before_a_node_stops_and_return_when_it_is_preferred(nodes: Any, ask: Any) -> None:
    await nodes.start()
    await ask(1, topic("t"), CreateTopicsResponse, 7)
    gone = nodes.another
    await nodes.stop(gone)
    image = nodes.image(nodes.controller)
    assert all(each.leader not in (gone, -1) and gone not in each.isr for each in image.topics["t"].partitions)
    await nodes.start(gone)
    await nodes.until(lambda: all(len(each.isr) == 3 for each in nodes.image(gone).topics["t"].partitions))
    request = ElectLeadersRequest(topic_partitions=None)
    answer: ElectLeadersResponse = await ask(nodes.another, request, ElectLeadersResponse, 2)
    assert len(answer.replica_election_results[0].partition_result) == 1
    await nodes.until(lambda: {each.leader for each in nodes.image(gone).topics["t"].partitions} == {1, 2, 3})


async def test_the_controller_hands_over_when_it_stops(nodes: Any, ask: Any) -> None:
    await nodes.start()
    first = nodes.controller
    await nodes.stop(first)
    await nodes.until(lambda: nodes.controller != first)
    answer = await ask(nodes.another, topic("t", factor=2), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert first not in {
        node for each in nodes.image(nodes.controller).topics["t"].partitions for node in each.replicas
    }


async def test_the_whole_cluster_restarts_with_what_it_knew(nodes: Any, ask: Any) -> None:
    await nodes.start()
    await ask(2, topic("t"), CreateTopicsResponse, 7)
    await asyncio.gather(*(nodes.stop(node_id) for node_id in (1, 2, 3)))
    await nodes.start()
    await nodes.until(
        lambda: all(each.leader >= 0 and len(each.isr) == 3 for each in nodes.image(1).topics["t"].partitions)
    )


async def test_producer_ids_of_different_brokers_never_meet(nodes: Any, ask: Any) -> None:
    await nodes.start()
    given = []
    for node_id in (1, 2, 3, 1):
        answer = await ask(node_id, InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 5)
        assert answer.error_code == ErrorCode.NONE
        given.append(answer.producer_id)
    assert len(set(given)) == 4


async def test_the_quorum_describes_itself_over_any_node(nodes: Any, ask: Any) -> None:
    await nodes.start()
    wanted = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData()])]
    for node_id in (1, 2, 3):
        answer: DescribeQuorumResponse = await ask(
            node_id, DescribeQuorumRequest(topics=wanted), DescribeQuorumResponse, 2
        )
        (partition,) = answer.topics[0].partitions
        assert partition.leader_id == nodes.controller
        assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
        assert [each.node_id for each in answer.nodes] == [1, 2, 3]
        assert partition.high_watermark > 3


async def test_a_node_joins_without_a_vote_gets_one_and_loses_it(nodes: Any, ask: Any) -> None:
    await nodes.start()
    await nodes.start(4)
    driver = nodes.running[nodes.controller]._store.driver
    assert driver.node.configuration.learners == (4,)
    await nodes.until(lambda: nodes.image(1).brokers[4].is_active)  # node 4 knows it first
    answer = await ask(4, add.AddRaftVoterRequest(voter_id=4, timeout_ms=10_000), add.AddRaftVoterResponse, 1)
    assert answer.error_code == ErrorCode.NONE, answer
    assert driver.node.configuration.voters == (1, 2, 3, 4)
    again = await ask(2, add.AddRaftVoterRequest(voter_id=4, timeout_ms=10_000), add.AddRaftVoterResponse, 1)
    assert again.error_code == ErrorCode.DUPLICATE_VOTER
    answer = await ask(1, remove.RemoveRaftVoterRequest(voter_id=4), remove.RemoveRaftVoterResponse, 0)
    assert answer.error_code == ErrorCode.NONE, answer
    assert driver.node.configuration.voters == (1, 2, 3)
    assert driver.node.configuration.learners == (4,)
    answer = await ask(4, topic("t"), CreateTopicsResponse, 7)  # without a vote it still knows what is going on
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert "t" in nodes.image(4).topics


async def test_a_controller_that_loses_its_vote_hands_over_and_stays_a_broker(nodes: Any, ask: Any) -> None:
    await nodes.start()
    first = nodes.controller
    answer = await ask(first, remove.RemoveRaftVoterRequest(voter_id=first), remove.RemoveRaftVoterResponse, 0)
    assert answer.error_code == ErrorCode.NONE, answer
    await nodes.until(lambda: nodes.controller != first)
    driver = nodes.running[nodes.controller]._store.driver
    await nodes.until(lambda: driver.node.configuration.learners == (first,))
    answer = await ask(first, topic("t"), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert "t" in nodes.image(first).topics


async def test_partitions_are_reassigned_to_a_new_broker_and_the_old_one_goes(nodes: Any, ask: Any) -> None:
    await nodes.start()
    await nodes.start(4)
    await ask(1, topic("t", partitions=1, factor=2), CreateTopicsResponse, 7)
    before = nodes.image(1).topics["t"].partitions[0].replicas
    target = [4, next(each for each in (1, 2, 3) if each not in before)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=target)])]
    )
    answer = await ask(2, request, AlterPartitionReassignmentsResponse, 1)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    await nodes.until(lambda: nodes.image(1).topics["t"].partitions[0].replicas == tuple(target))
    partition = nodes.image(1).topics["t"].partitions[0]
    assert partition.leader in target
    assert sorted(partition.isr) == sorted(target)
    assert partition.adding == partition.removing == ()


async def test_a_broker_that_is_unregistered_is_forgotten_and_comes_back_by_registering(nodes: Any, ask: Any) -> None:
    await nodes.start()
    gone = nodes.another
    await nodes.stop(gone)
    answer = await ask(nodes.another, UnregisterBrokerRequest(broker_id=gone), UnregisterBrokerResponse, 0)
    assert answer.error_code == ErrorCode.NONE
    assert gone not in nodes.image(nodes.controller).brokers
    again = await ask(nodes.another, UnregisterBrokerRequest(broker_id=gone), UnregisterBrokerResponse, 0)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    await nodes.start(gone)
    assert nodes.image(gone).brokers[gone].is_active


async def test_what_nodes_say_among_themselves_is_not_for_clients(nodes: Any, ask: Any) -> None:
    await nodes.start()
    answer: ApiVersionsResponse = await ask(1, ApiVersionsRequest(), ApiVersionsResponse, 2)
    keys = {each.api_key for each in answer.api_keys}
    assert {55, 64, 80} <= keys
    assert not keys & {56, 62, 63, 67}
    assert max(keys) < 32_000


async def test_a_node_that_is_not_the_controller_changes_the_levels_of_its_own_loggers(nodes: Any, ask: Any) -> None:
    await nodes.start()
    for node_id in nodes.voters:
        change = AlterableConfig(name="tidemark.requests", config_operation=1)  # delete: none of its own
        answers = []
        for name in (node_id, node_id + 1):
            loggers = AlterConfigsResource(resource_type=8, resource_name=str(name), configs=[change])
            request = IncrementalAlterConfigsRequest(resources=[loggers])
            answer: IncrementalAlterConfigsResponse = await ask(node_id, request, IncrementalAlterConfigsResponse, 1)
            answers += [each.error_code for each in answer.responses]
        assert answers == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


async def test_min_insync_replicas_is_one_value_whatever_the_nodes_files_say(nodes: Any) -> None:
    await asyncio.gather(*(nodes.start(node_id, min_insync_replicas=node_id) for node_id in nodes.voters))
    await nodes.until(lambda: all((4, "") in nodes.image(each).configs for each in nodes.voters))
    values = {node.settings.current.min_insync_replicas for node in nodes.running.values()}
    assert values == {nodes.running[nodes.controller].config.min_insync_replicas}


async def test_a_node_that_knows_only_bootstrap_servers_joins(nodes: Any) -> None:
    await nodes.start()
    servers = ",".join(f"127.0.0.1:{nodes.own_ports[each]}" for each in nodes.voters)
    await nodes.start(4, controller_quorum_voters="", controller_quorum_bootstrap_servers=servers)
    await nodes.until(lambda: nodes.image(1).brokers[4].is_active)
    assert nodes.running[nodes.controller]._store.driver.node.configuration.learners == (4,)
    await nodes.stop(4)
    await nodes.start(4, controller_quorum_voters="", controller_quorum_bootstrap_servers=servers)


async def test_voters_are_known_by_their_directories(nodes: Any, ask: Any) -> None:
    await nodes.start()
    driver = nodes.running[nodes.controller]._store.driver
    await nodes.until(lambda: all(any(each.directory_id) for each in driver.node.configuration.members))
    own = {(nodes.path / str(each) / "tidemark-metadata" / "directory-id").read_text() for each in nodes.voters}
    assert {each.directory_id.hex() for each in driver.node.configuration.members} == own
    wanted = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData()])]
    told = await ask(nodes.another, DescribeQuorumRequest(topics=wanted), DescribeQuorumResponse, 2)
    assert {bytes(each.replica_directory_id).hex() for each in told.topics[0].partitions[0].current_voters} == own
    request = remove.RemoveRaftVoterRequest(voter_id=nodes.another, voter_directory_id=b"x" * 16)
    answer = await ask(nodes.another, request, remove.RemoveRaftVoterResponse, 0)
    assert answer.error_code == ErrorCode.VOTER_NOT_FOUND
    assert len(driver.node.configuration.voters) == 3


async def test_a_process_with_the_id_of_a_voter_and_another_disk_does_not_take_its_place(nodes: Any) -> None:
    await nodes.start()
    controller, other = nodes.running[nodes.controller], nodes.another
    quorum: Any = controller._cluster.quorum
    driver = controller._store.driver
    await nodes.until(lambda: all(any(each.directory_id) for each in driver.node.configuration.members))
    before = driver.node.configuration
    with pytest.raises(Refused) as refused:
        await quorum.add_observer(
            other, host="127.0.0.1", port=1, cluster_id=nodes.image(other).cluster_id, directory_id=b"x" * 16
        )
    assert refused.value.code == ErrorCode.INVALID_VOTER_KEY
    assert driver.node.configuration == before


async def test_a_voter_whose_disk_was_replaced_is_told_so_and_stops(nodes: Any) -> None:
    await nodes.start()
    driver = nodes.running[nodes.controller]._store.driver
    await nodes.until(lambda: all(any(each.directory_id) for each in driver.node.configuration.members))
    gone = nodes.another
    await nodes.stop(gone)
    shutil.rmtree(nodes.path / str(gone))
    with pytest.raises(RuntimeError, match=r"INVALID_VOTER_KEY.*another directory"):
        await nodes.start(gone)
    await nodes.stop(gone)


async def test_a_node_without_its_metadata_refuses_to_start_until_it_is_formatted(nodes: Any, ask: Any) -> None:
    await nodes.start()
    gone = nodes.another
    await nodes.stop(gone)
    shutil.rmtree(nodes.path / str(gone) / "tidemark-metadata")
    with pytest.raises(RuntimeError, match=r"metadata of node \d is missing.*tidemark format"):
        await nodes.start(gone)
    nodes.running.pop(gone)
    answer = await ask(nodes.another, remove.RemoveRaftVoterRequest(voter_id=gone), remove.RemoveRaftVoterResponse, 0)
    assert answer.error_code == ErrorCode.NONE, answer
    MetadataDirectory(nodes.path / str(gone) / "tidemark-metadata").allow_rejoining()
    await nodes.start(gone)
    assert nodes.running[nodes.controller]._store.driver.node.configuration.learners == (gone,)


async def test_a_fenced_broker_serves_again_when_it_has_given_up_what_others_lead_now(nodes: Any) -> None:
    """To know who leads is not enough: thousands of partitions change their roles in slices, after the image."""
    await nodes.start()
    controller: Any = nodes.running[nodes.controller]._cluster
    late = nodes.another
    roles = nodes.running[late]._replicas.roles
    roles._put_off[bytes(16), 0] = None
    await controller.controller._fence(late, "this test wants it")
    session = controller.controller._sessions.get(late)
    for _ in range(5):
        session.is_heard = False
        await nodes.until(lambda: session.is_heard)
    assert nodes.image(nodes.controller).brokers[late].fenced
    roles._put_off.clear()
    await nodes.until(lambda: not nodes.image(late).brokers[late].fenced)


async def test_a_node_stops_though_a_change_waits_for_a_controller_that_will_not_come(
    nodes: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is that for the limit of a shutdown to end, which is for what cannot be told to stop waiting."""
    monkeypatch.setattr("tidemark.broker.server.dispatch.FINISH_SECONDS_MAX", 1000)
    await nodes.start()
    last = nodes.another
    client = await connect(nodes.running[last])
    asking = True

    async def ask_on() -> None:
        while asking:
            await client.ask(MetadataRequest(topics=[]))

    for node_id in [each for each in nodes.running if each != last]:
        await nodes.stop(node_id)
    waiting = await connect(nodes.running[last])
    request = topic("t", factor=1)
    request.timeout_ms = 60_000
    answer = asyncio.create_task(waiting.ask(request))
    asker = asyncio.create_task(ask_on())
    _, pending = await asyncio.wait([answer, asker], timeout=0.2)
    assert len(pending) == 2, "the change waits, and the other client is served"
    await nodes.stop(last)
    asking = False
    told: Any = (await asyncio.gather(answer, asker, return_exceptions=True))[0]
    assert isinstance(told, Exception) or told.topics[0].error_code, "it was not told that it was done"
