"""The group APIs through a running node: every version, bad input, restarts, deleted topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemark.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidemark.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t"


@pytest.fixture
async def client(start_node: Any, connect: Any) -> Any:
    """A connection to a node that has the topic t and a coordinator."""
    node = await start_node(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2)
    return await prepared(await connect(node))


async def prepared(client: Any) -> Any:
    await client.create("t", partitions=2)
    found = await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 0)
    assert found.error_code == 0
    return client


def join_request(group: str = "g", *, session_ms: int = 10_000, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def commit_request(offset: int, *, group: str = "g", topic_id: bytes = bytes(16), **rest: Any) -> OffsetCommitRequest:
    asked = OffsetCommitRequestPartition(partition_index=1, committed_offset=offset, committed_metadata="m")
    topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[asked])
    return OffsetCommitRequest(group_id=group, topics=[topic], **rest)


async def commit(client: Any, request: OffsetCommitRequest, version: int = 9) -> ErrorCode:
    answer = await client.call(request, OffsetCommitResponse, version)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(client: Any, group: str = "g") -> dict[tuple[str, int], int]:
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = await client.call(asked, OffsetFetchResponse, 9)
    assert answer.groups[0].error_code == 0
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.groups[0].topics
        for each in topic.partitions
    }


async def stable(client: Any, group: str = "g") -> str:
    joined = await client.call(join_request(group), JoinGroupResponse, 3)
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    sync = sync_request(group, joined.member_id, share)
    assert (await client.call(sync, SyncGroupResponse, 5)).assignment == b"mine"
    return str(joined.member_id)


def sync_request(group: str, member_id: str, share: SyncGroupRequestAssignment) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[share],
    )


async def topic_id_of(client: Any, name: str) -> bytes:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return bytes((await client.call(asked, MetadataResponse, 12)).topics[0].topic_id)


@pytest.mark.parametrize("version", range(7))
async def test_every_version_finds_the_coordinator(client: Any, version: int) -> None:
    asked = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    answer = await client.call(asked, FindCoordinatorResponse, version)
    found = answer.coordinators if version >= 4 else [answer]
    assert len(found) == (2 if version >= 4 else 1)
    for each in found:
        assert (each.error_code, each.node_id, each.host) == (0, 0, "127.0.0.1")
        assert each.port > 0


@pytest.mark.parametrize("key_type", [2, 9])
async def test_other_coordinators_are_not_here(client: Any, key_type: int) -> None:
    asked = FindCoordinatorRequest(key="x", key_type=key_type, coordinator_keys=["x"])
    one = await client.call(asked, FindCoordinatorResponse, 3)
    [many] = (await client.call(asked, FindCoordinatorResponse, 6)).coordinators
    assert one.error_code == many.error_code == ErrorCode.INVALID_REQUEST
    assert (one.node_id, many.node_id, many.key) == (-1, -1, "x")


async def test_the_offsets_topic_is_internal_and_closed_to_clients(client: Any) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets"), MetadataRequestTopic(name="t")])
    internal, ordinary = (await client.call(asked, MetadataResponse, 12)).topics
    assert (internal.is_internal, len(internal.partitions), ordinary.is_internal) == (True, 2, False)
    answer = await client.produce("__consumer_offsets", b"x")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join_and_sync_makes_a_group(client: Any, version: int) -> None:
    joined = await client.call(join_request(), JoinGroupResponse, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await client.call(join_request(member_id=joined.member_id), JoinGroupResponse, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.members[0].metadata == SUBSCRIPTION
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
    sync = sync_request("g", joined.member_id, share)
    assert (await client.call(sync, SyncGroupResponse, min(version, 5))).assignment == b"a"
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await client.call(alive, HeartbeatResponse, min(version, 4))).error_code == 0
    member = MemberIdentity(member_id=joined.member_id)
    leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=[member])
    assert (await client.call(leave, LeaveGroupResponse, min(version, 5))).error_code == 0
    assert (await client.call(leave, LeaveGroupResponse, 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(2, 11))
async def test_every_version_commits(client: Any, version: int) -> None:
    request = commit_request(7, topic_id=await topic_id_of(client, "t"))
    assert await commit(client, request, version) == 0
    assert await committed(client) == {("t", 1): 7}


@pytest.mark.parametrize("version", range(1, 11))
async def test_every_version_fetches(client: Any, version: int) -> None:
    topic_id = await topic_id_of(client, "t")
    await commit(client, commit_request(7))
    topic = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[1, 0])
    groups = [OffsetFetchRequestGroup(group_id=group, topics=[topic]) for group in ("g", "none")]
    old = OffsetFetchRequestTopic(name="t", partition_indexes=[1, 0])
    asked = OffsetFetchRequest(group_id="g", topics=[old], groups=groups)
    answer = await client.call(asked, OffsetFetchResponse, version)
    if version >= 8:
        found, none = answer.groups
        assert [each.committed_offset for each in none.topics[0].partitions] == [-1, -1]
        topics = found.topics
        assert topics[0].topic_id == (topic_id if version == 10 else bytes(16))
    else:
        topics = answer.topics
    assert [(each.committed_offset, each.metadata) for each in topics[0].partitions] == [(7, "m"), (-1, "")]


async def test_unknown_topic_ids_are_told_apart(client: Any) -> None:
    assert await commit(client, commit_request(7, topic_id=b"?" * 16), 10) == ErrorCode.UNKNOWN_TOPIC_ID
    topic = OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0])
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    answer = await client.call(asked, OffsetFetchResponse, 10)
    assert answer.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_empty_group_id_is_invalid(client: Any) -> None:
    invalid = ErrorCode.INVALID_GROUP_ID
    assert (await client.call(join_request(""), JoinGroupResponse, 9)).error_code == invalid
    assert (await client.call(SyncGroupRequest(), SyncGroupResponse, 4)).error_code == invalid
    assert (await client.call(HeartbeatRequest(), HeartbeatResponse, 4)).error_code == invalid
    assert (await client.call(LeaveGroupRequest(), LeaveGroupResponse, 5)).error_code == invalid
    assert (await client.call(OffsetDeleteRequest(), OffsetDeleteResponse, 0)).error_code == invalid
    assert (await client.call(ListGroupsRequest(), ListGroupsResponse, 5)).groups == []


async def test_the_longest_group_id_that_a_request_can_carry_works(client: Any) -> None:
    group = "g" * 32_767
    assert await commit(client, commit_request(3, group=group)) == 0
    assert await committed(client, group) == {("t", 1): 3}
    await stable(client, group)


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1, 0])
async def test_a_session_time_out_outside_of_the_bounds_is_refused(client: Any, session_ms: int) -> None:
    answer = await client.call(join_request(session_ms=session_ms), JoinGroupResponse, 9)
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.INVALID_SESSION_TIMEOUT, None)


async def test_nothing_is_coordinated_before_anybody_asked(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    assert (await client.call(join_request(), JoinGroupResponse, 3)).error_code == ErrorCode.NOT_COORDINATOR
    assert await commit(client, commit_request(1)) == ErrorCode.NOT_COORDINATOR
    assert (await client.call(ListGroupsRequest(), ListGroupsResponse, 5)).groups == []


async def test_groups_are_listed_by_state_and_type(client: Any) -> None:
    await stable(client, "busy")
    await commit(client, commit_request(1, group="idle"))

    async def listed(**filters: list[str]) -> set[str]:
        answer = await client.call(ListGroupsRequest(**filters), ListGroupsResponse, 5)
        return {each.group_id for each in answer.groups}

    assert await listed() == {"busy", "idle"}
    assert await listed(states_filter=["stable"]) == {"busy"}
    assert await listed(states_filter=["Empty", "Dead"]) == {"idle"}
    assert await listed(types_filter=["classic"]) == {"busy", "idle"}
    assert await listed(types_filter=["share"]) == set()


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described(client: Any, version: int) -> None:
    member_id = await stable(client)
    asked = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
    found, none = (await client.call(asked, DescribeGroupsResponse, version)).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    [member] = found.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
    assert none.group_state == "Dead"
    assert none.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else 0)


async def test_a_group_with_members_cannot_be_deleted(client: Any) -> None:
    member_id = await stable(client)
    asked = DeleteGroupsRequest(groups_names=["g", "none"])
    codes = [each.error_code for each in (await client.call(asked, DeleteGroupsResponse, 2)).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    await client.call(LeaveGroupRequest(group_id="g", member_id=member_id), LeaveGroupResponse, 0)
    codes = [each.error_code for each in (await client.call(asked, DeleteGroupsResponse, 2)).results]
    assert codes == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    answer = await client.call(OffsetDeleteRequest(group_id="g"), OffsetDeleteResponse, 0)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_and_members_survive_a_restart(start_node: Any, connect: Any) -> None:
    node = await start_node(group_initial_rebalance_delay_ms=0)
    client = await prepared(await connect(node))
    member_id = await stable(client)
    request = commit_request(7, member_id=member_id, generation_id_or_member_epoch=1)
    assert await commit(client, request) == 0
    await node.stop()
    client = await connect(await start_node(group_initial_rebalance_delay_ms=0))
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert (await client.call(alive, HeartbeatResponse, 4)).error_code == 0
    assert await committed(client) == {("t", 1): 7}
    [found] = (await client.call(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6)).groups
    assert (found.group_state, found.members[0].member_assignment) == ("Stable", b"mine")


async def test_offsets_go_with_their_topic(start_node: Any, connect: Any) -> None:
    node = await start_node(offsets_topic_num_partitions=2)
    client = await prepared(await connect(node))
    await commit(client, commit_request(7))
    await client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), DeleteTopicsResponse, 6)
    assert await committed(client) == {}
    await client.create("t", partitions=2)
    assert await committed(client) == {}
    await node.stop()
    assert await committed(await connect(await start_node())) == {}


async def test_a_commit_is_answered_when_it_is_on_disk_where_that_is_asked_for(start_node: Any, connect: Any) -> None:
    client = await prepared(
        await connect(await start_node(log_flush_interval_messages=1, offsets_topic_num_partitions=2))
    )
    for offset in range(5):
        assert await commit(client, commit_request(offset)) == 0
    assert await committed(client) == {("t", 1): 4}
    asked = DeleteGroupsRequest(groups_names=["g"])
    assert [each.error_code for each in (await client.call(asked, DeleteGroupsResponse, 2)).results] == [0]


async def test_a_member_that_waits_to_join_gets_an_error_when_the_node_stops(start_node: Any, connect: Any) -> None:
    node = await start_node(group_initial_rebalance_delay_ms=60_000)
    client = await prepared(await connect(node))
    client.send(join_request(), 3)
    await client.writer.drain()
    await asyncio.sleep(0)
    other = await connect(node)
    async with asyncio.timeout(20):
        while not (await other.call(ListGroupsRequest(), ListGroupsResponse, 5)).groups:
            await asyncio.sleep(0.01)
    stopping = asyncio.create_task(node.stop())
    answer = await asyncio.wait_for(client.receive(JoinGroupResponse, 3), 5)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    await stopping
