"""Whatever ids clients name, in whichever API of groups and transactions: what we remember of them has a bound."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import Any

from tidemark.broker.coordination.coordinator import MEMO_BYTES_MAX, MEMO_ENTRY_BYTES
from tidemark.broker.groups import expected_members, member_memory
from tidemark.broker.groups.expected_members import ExpectedMembers
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidemark.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidemark.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidemark.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidemark.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidemark.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidemark.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tidemark.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidemark.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

ID_LENGTH = 5_000
ROUNDS = 12
GROWTH_BYTES_MAX = 150_000  # of 19 APIs × 12 rounds × one to three ids of 5,000 characters: 2 MB of ids


def requests(random: Random) -> list[tuple[Any, Any, int]]:
    """One of each API, about things that do not exist."""

    def name() -> str:
        return f"{random.getrandbits(64):016x}".ljust(ID_LENGTH, "x")

    joins = JoinGroupRequest(
        group_id=name(), session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")], member_id=name(),
    )  # fmt: skip
    commit = OffsetCommitRequest(
        group_id=name(),
        generation_id_or_member_epoch=1,
        member_id=name(),
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])],
    )
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name(), v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])]
    )
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=name(), member_id=name(), member_epoch=0, rebalance_timeout_ms=1_000, topic_partitions=[],
        subscribed_topic_regex=name() + "(",
    )  # fmt: skip
    return [
        (FindCoordinatorRequest(key_type=0, coordinator_keys=[name(), name()]), FindCoordinatorResponse, 6),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=[name(), name()]), FindCoordinatorResponse, 6),
        (joins, JoinGroupResponse, 9),
        (SyncGroupRequest(group_id=name(), member_id=name()), SyncGroupResponse, 4),
        (HeartbeatRequest(group_id=name(), member_id=name()), HeartbeatResponse, 4),
        (LeaveGroupRequest(group_id=name(), members=[MemberIdentity(member_id=name())]), LeaveGroupResponse, 5),
        (heartbeat, ConsumerGroupHeartbeatResponse, 1),
        (ConsumerGroupDescribeRequest(group_ids=[name(), name()]), ConsumerGroupDescribeResponse, 1),
        (DescribeGroupsRequest(groups=[name(), name()]), DescribeGroupsResponse, 6),
        (DeleteGroupsRequest(groups_names=[name(), name()]), DeleteGroupsResponse, 2),
        (commit, OffsetCommitResponse, 9),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name(), topics=None)]), OffsetFetchResponse, 9),
        (OffsetDeleteRequest(group_id=name()), OffsetDeleteResponse, 0),
        (InitProducerIdRequest(transactional_id=name(), transaction_timeout_ms=-1), InitProducerIdResponse, 4),
        (added, AddPartitionsToTxnResponse, 3),
        (AddOffsetsToTxnRequest(transactional_id=name(), group_id=name()), AddOffsetsToTxnResponse, 4),
        (EndTxnRequest(transactional_id=name()), EndTxnResponse, 5),
        (TxnOffsetCommitRequest(transactional_id=name(), group_id=name()), TxnOffsetCommitResponse, 5),
        (DescribeTransactionsRequest(transactional_ids=[name(), name()]), DescribeTransactionsResponse, 0),
    ]


async def test_ids_that_do_not_exist_leave_nothing_behind(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2))
    await client.create("t", partitions=1)
    random = Random(1)

    async def drive(rounds: int) -> None:
        for _ in range(rounds):
            for request, response, version in requests(random):
                await client.call(request, response, version)

    await drive(5)  # code is loaded, buffers are made
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await drive(ROUNDS)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < GROWTH_BYTES_MAX


async def test_member_ids_that_no_client_joins_with_have_a_bound(
    start_node: Any, connect: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(expected_members, "BYTES_MAX", 100_000)
    node = await start_node(offsets_topic_num_partitions=1)
    client = await connect(node)
    await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 0)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    for number in range(200):
        await client.call(
            JoinGroupRequest(
                group_id=f"g{number % 50}", session_timeout_ms=300_000, protocol_type="consumer", protocols=protocols
            ),
            JoinGroupResponse,
            9,
        )
    [host] = list(node._coordinators.groups)
    pending = sum(len(group.pending) for group in host.shard.groups.values())
    assert 0 < pending <= 50
    assert len(host.shard.groups) <= 50


def test_the_oldest_expected_member_is_forgotten_first() -> None:
    expected, forgotten = ExpectedMembers(), list[int]()
    many = expected_members.BYTES_MAX // expected_members.ENTRY_BYTES + 3
    for number in range(many):
        expected.add(lambda _, number=number: forgotten.append(number), id_length=0, now_ms=0)  # type: ignore[misc]
    assert forgotten == [0, 1, 2]


async def test_what_is_cached_of_groups_that_exist_has_a_bound_in_bytes(start_node: Any, connect: Any) -> None:
    node = await start_node(offsets_topic_num_partitions=1)
    client = await connect(node)
    await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 0)
    groups = node._coordinators.groups
    [host] = list(groups)
    while host.is_loading:
        await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 0)
    many = MEMO_BYTES_MAX // (MEMO_ENTRY_BYTES + 4 * ID_LENGTH) + 10
    for number in range(many):
        name = str(number).ljust(ID_LENGTH)
        assert groups.find(name) is host
        assert name not in groups._memo
        host.shard.groups[name] = None
        groups.find(name)
        assert groups._memo_bytes <= MEMO_BYTES_MAX
    assert 0 < len(groups._memo) < many
    host.shard.groups.clear()


async def test_what_members_tell_about_themselves_has_a_bound(start_node: Any, connect: Any, monkeypatch: Any) -> None:
    """A member may tell 8 MB, go away, and count as one for half an hour."""
    monkeypatch.setattr(member_memory, "BYTES_MAX", 1_000_000)
    monkeypatch.setattr(member_memory, "COUNTED_EVERY_MS", 0)
    node = await start_node(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    client = await connect(node)
    await client.call(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 0)

    async def join(number: int, told_bytes: int) -> Any:
        request = JoinGroupRequest(
            group_id=f"g{number}",
            session_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(told_bytes))],
        )
        return await client.call(request, JoinGroupResponse, 3)

    joined = [await join(number, 300_000) for number in range(8)]
    assert [each.error_code for each in joined] == [0] * 3 + [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5
    assert node._coordinators.groups._told_bytes() == 900_000
    assert (await join(8, 50)).error_code == ErrorCode.NONE, "there is room for a member as others are"
    leaving = LeaveGroupRequest(group_id="g0", members=[MemberIdentity(member_id=joined[0].member_id)])
    await client.call(leaving, LeaveGroupResponse, 5)
    assert (await join(9, 300_000)).error_code == ErrorCode.NONE
