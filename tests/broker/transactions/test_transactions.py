"""Transactions through a node, over a socket: what is seen, what is refused, what survives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.markers import LocalMarkerWriter
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_a_reader_sees_what_was_committed_and_not_what_was_aborted(txn: Any) -> None:
    producer = await txn.start("a")
    await txn.produce("a", producer, b"1", b"2")
    producer = await txn.commit("a", producer)
    await txn.produce("a", producer, b"3")
    producer = await txn.abort("a", producer)
    await txn.produce("a", producer, b"4")
    await txn.commit("a", producer)
    assert await txn.read() == [b"1", b"2", b"4"]


async def test_the_classic_rules_keep_the_epoch(txn: Any) -> None:
    producer = await txn.start("a")
    for sequence, commit in enumerate((True, False, True)):
        assert await txn.add("a", producer, 0) == [ErrorCode.NONE]
        assert await txn.produce("a", producer, b"%d" % sequence, sequence=sequence, version=11) == ErrorCode.NONE
        answer = await txn.end("a", producer, commit=commit, version=4)
        assert answer.error_code == 0
    assert await txn.read() == [b"0", b"2"]
    assert (await txn.describe("a")).producer_epoch == producer[1]


async def test_nothing_beyond_the_last_stable_offset_is_shown_and_a_waiting_fetch_wakes_when_it_moves(
    txn: Any, speak: Any
) -> None:
    producer = await txn.start("a")
    await txn.client.produce("t", b"plain")
    await txn.produce("a", producer, b"open")
    await txn.client.produce("t", b"behind")
    answer = await txn.fetch(1)
    assert (answer.last_stable_offset, answer.high_watermark, answer.records or b"") == (1, 3, b"")
    assert (await txn.end_offset(), await txn.end_offset(isolation=0)) == (1, 3)
    assert len((await txn.fetch(1, isolation=0)).records) > 0
    other = await speak(txn.node)
    waiting = asyncio.create_task(other.fetch(1, wait_ms=10_000))
    await txn.client.produce("t", b"more")  # which moves the high watermark, but not the last stable offset
    await txn.end_offset()
    assert not waiting.done()
    await txn.commit("a", producer)
    answer = await asyncio.wait_for(waiting, 5)
    assert (answer.last_stable_offset, answer.high_watermark) == (5, 5)
    assert await txn.read() == [b"plain", b"open", b"behind", b"more"]


async def test_a_transaction_over_several_partitions_is_all_or_nothing(txn: Any) -> None:
    producer = await txn.start("a")
    for partition in range(3):
        await txn.produce("a", producer, b"%d" % partition, partition=partition)
    assert [await txn.read(partition=each) for each in range(3)] == [[], [], []]
    await txn.commit("a", producer)
    assert [await txn.read(partition=each) for each in range(3)] == [[b"0"], [b"1"], [b"2"]]


async def test_a_second_producer_takes_over_and_the_first_is_fenced(txn: Any) -> None:
    first = await txn.start("a")
    await txn.produce("a", first, b"lost")
    assert (await txn.init("a")).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    second = await txn.start("a")
    assert second == (first[0], first[1] + 2)
    assert await txn.produce("a", first, b"late", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await txn.end("a", first, commit=True)).error_code == FENCED
    assert (await txn.end("a", first, commit=True, version=1)).error_code == OLD_FENCED
    assert (await txn.init("a", producer=first)).error_code == FENCED
    assert (await txn.init("a", producer=first, version=3)).error_code == OLD_FENCED
    await txn.produce("a", second, b"kept")
    await txn.commit("a", second)
    assert await txn.read() == [b"kept"]


async def test_a_zombie_cannot_abort_its_successors_transaction(txn: Any) -> None:
    first = await txn.start("a")
    second = await txn.start("a")
    await txn.produce("a", second, b"1")
    assert (await txn.init("a", producer=first)).error_code == FENCED
    assert (await txn.describe("a")).transaction_state == "Ongoing"


async def test_a_repeated_initialisation_of_the_same_producer_gets_the_same_answer(txn: Any) -> None:
    producer = await txn.start("a")
    bumped = await txn.start("a", producer=producer)
    assert bumped == (producer[0], producer[1] + 1)
    assert await txn.start("a", producer=producer) == bumped


async def test_a_repeated_end_gets_the_same_answer_and_a_contrary_one_is_refused(txn: Any) -> None:
    producer = await txn.start("a")
    await txn.produce("a", producer, b"1")
    bumped = await txn.commit("a", producer)
    assert await txn.commit("a", producer) == bumped
    assert (await txn.end("a", producer, commit=False)).error_code == ErrorCode.INVALID_TXN_STATE
    assert (await txn.end("a", bumped, commit=True)).error_code == ErrorCode.INVALID_TXN_STATE
    assert await txn.read() == [b"1"]


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(txn: Any) -> None:
    producer = await txn.start("a", timeout_ms=100)
    await txn.produce("a", producer, b"late")
    found = await asyncio.wait_for(txn.settled("a", "CompleteAbort"), 10)
    assert found.producer_epoch == producer[1] + 1
    assert await txn.produce("a", producer, b"later", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await txn.end("a", producer, commit=True)).error_code == ErrorCode.INVALID_TXN_STATE
    assert await txn.read() == []
    assert await txn.end_offset() == await txn.end_offset(isolation=0)


async def test_requests_that_make_no_sense_are_refused_and_change_nothing(txn: Any) -> None:
    producer_id, epoch = producer = await txn.start("a")
    stranger, newer = (producer_id + 7, epoch), (producer_id, epoch + 1)
    before = await txn.describe("a")
    assert (await txn.init("b", timeout_ms=900_001)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await txn.init("b", timeout_ms=0)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await txn.init("")).error_code == ErrorCode.INVALID_REQUEST
    assert (await txn.init("a", producer=(producer_id, -1))).error_code == ErrorCode.INVALID_REQUEST
    assert await txn.add("a", newer, 0) == [FENCED]
    assert await txn.add("a", newer, 0, version=1) == [OLD_FENCED]
    assert await txn.add("a", stranger, 0) == [UNMAPPED]
    assert await txn.add("b", producer, 0) == [UNMAPPED]
    assert await txn.add("", producer, 0) == [ErrorCode.INVALID_REQUEST]
    assert await txn.add("a", producer, 0, 99) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    for internal in ("__transaction_state", "__consumer_offsets"):
        assert await txn.add("a", producer, 0, topic=internal) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await txn.produce("a", producer, b"x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert await txn.produce("a", producer, b"x", version=10) == ErrorCode.INVALID_TXN_STATE
    assert await txn.produce("a", newer, b"x") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await txn.produce("a", stranger, b"x") == UNMAPPED
    assert await txn.produce("b", producer, b"x") == UNMAPPED
    assert await txn.produce(None, producer, b"x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for commit, version in ((True, 4), (False, 4), (True, 5)):
        answer = await txn.end("a", producer, commit=commit, version=version)
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert (await txn.end("a", newer, commit=True, version=4)).error_code == FENCED
    assert (await txn.end("a", stranger, commit=True)).error_code == UNMAPPED
    assert (await txn.end("b", producer, commit=True)).error_code == UNMAPPED
    assert (await txn.end("", producer, commit=True)).error_code == ErrorCode.INVALID_REQUEST
    assert await txn.describe("a") == before
    assert await txn.end_offset(isolation=0) == 0
    assert (await txn.describe("nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_plain_batch_does_not_enter_an_open_transaction(txn: Any) -> None:
    producer = await txn.start("a")
    await txn.produce("a", producer, b"1")
    refused = await txn.produce(None, producer, b"2", sequence=1, transactional=False)
    assert refused == ErrorCode.INVALID_TXN_STATE


async def test_what_was_sent_behind_the_refused_first_batch_of_a_transaction_waits_for_it(txn: Any) -> None:
    producer = await txn.start("a")
    table = txn.node._replicas.table
    table.lease_until = 0.0
    assert await txn.produce("a", producer, b"1") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    table.lease_until = None
    assert await txn.produce("a", producer, b"2", sequence=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [await txn.produce("a", producer, b"%d" % at, sequence=at) for at in (0, 1)] == [0, 0]


async def test_likewise_behind_one_that_came_before_the_last_transaction_was_complete(
    txn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await txn.start("a")
    with monkeypatch.context() as coordinator:
        busy = {("t", 0): ErrorCode.CONCURRENT_TRANSACTIONS}
        coordinator.setattr(TransactionCoordinator, "add_partitions", lambda _self, _addition: busy)
        assert await txn.produce("a", producer, b"1") == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await txn.produce("a", producer, b"2", sequence=1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [await txn.produce("a", producer, b"%d" % at, sequence=at) for at in (0, 1)] == [0, 0]
    assert await txn.produce("a", producer, b"4", sequence=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_late_write_of_an_old_transaction_never_becomes_part_of_the_next(txn: Any) -> None:
    first = await txn.start("a")
    await txn.produce("a", first, b"1")
    second = await txn.commit("a", first)
    await txn.produce("a", second, b"2")
    assert await txn.produce("a", first, b"late", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await txn.produce("a", first, b"late", partition=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    await txn.commit("a", second)
    assert await txn.read() == [b"1", b"2"]


async def test_the_last_epoch_is_followed_by_a_new_producer_id(start_node: Any, speak: Any) -> None:
    node = await start_node(transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1")
    txn = await speak(node)
    await txn.client.create("t", 1)
    await txn.prepare()
    producer_id, _ = await txn.start("a")
    [host] = list(node._coordinators.transactions)
    host.shard.transactions["a"] = host.shard.transactions["a"]._replace(producer_epoch=32766)
    assert await txn.produce("a", (producer_id, 32766), b"1") == ErrorCode.NONE
    producer = await txn.commit("a", (producer_id, 32766))
    assert producer[0] != producer_id
    assert producer[1] == 0
    assert await txn.commit("a", (producer_id, 32766)) == producer  # asked again
    assert await txn.produce("a", producer, b"2") == ErrorCode.NONE
    await txn.commit("a", producer)
    assert await txn.read() == [b"1", b"2"]


# -- offsets ---------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_of_a_transaction_count_when_it_commits(txn: Any, version: int) -> None:
    producer = await txn.start("a")
    for offset, commit in ((5, True), (9, False)):
        if version < 5:
            assert await txn.add_offsets("a", producer) == ErrorCode.NONE
        assert await txn.commit_offset("a", producer, offset, version=version) == ErrorCode.NONE
        before = -1 if commit else 5
        assert await txn.committed() == (before, ErrorCode.NONE)
        assert await txn.committed(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        answer = await txn.end("a", producer, commit=commit, version=version)
        assert answer.error_code == 0
        if version >= 5:
            producer = (answer.producer_id, answer.producer_epoch)
        assert await txn.committed(stable=True) == (5, ErrorCode.NONE)


async def test_offsets_from_strangers_and_fenced_members_are_refused_and_change_nothing(txn: Any) -> None:
    producer = await txn.start("a")
    old = (producer[0], producer[1] + 1)
    assert await txn.commit_offset("a", producer, 5, version=3) == ErrorCode.INVALID_TXN_STATE
    assert await txn.commit_offset("a", producer, 5, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert await txn.commit_offset("a", old, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await txn.commit_offset("b", producer, 5) == UNMAPPED
    assert await txn.commit_offset("a", producer, 5, group="") == ErrorCode.INVALID_GROUP_ID
    assert await txn.commit_offset("a", producer, 5, generation=3, member="m") == ErrorCode.ILLEGAL_GENERATION
    assert await txn.commit_offset("a", producer, 5, topic="nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await txn.add_offsets("a", old) == FENCED
    assert await txn.add_offsets("a", old, version=1) == OLD_FENCED
    assert await txn.committed(stable=True) == (-1, ErrorCode.NONE)


# -- restarts --------------------------------------------------------------


async def test_what_was_decided_is_carried_out_after_a_restart(
    start_node: Any, speak: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
    node = await start_node(**few)
    txn = await speak(node)
    await txn.client.create("t", 2)
    await txn.prepare()
    producers = {name: await txn.start(name) for name in ("commits", "aborts", "stays")}
    for partition, (name, producer) in enumerate(producers.items()):
        await txn.produce(name, producer, name.encode(), partition=partition % 2)
    await txn.commit_offset("commits", producers["commits"], 7)
    with monkeypatch.context() as broken:  # the broker dies between the decision and the markers
        broken.setattr(LocalMarkerWriter, "write", lambda *_, **__: ErrorCode.NOT_ENOUGH_REPLICAS)
        await txn.commit("commits", producers["commits"])
        await txn.abort("aborts", producers["aborts"])
        assert (await txn.describe("commits")).transaction_state == "PrepareCommit"
        assert await txn.read() == []
        await node.stop()
    again = await speak(await start_node(**few))
    await asyncio.wait_for(again.settled("commits", "CompleteCommit"), 10)
    await asyncio.wait_for(again.settled("aborts", "CompleteAbort"), 10)
    assert await again.committed(stable=True) == (7, ErrorCode.NONE)
    assert await again.read(partition=1) == []
    await again.commit("stays", producers["stays"])
    assert await again.read() == [b"commits", b"stays"]


async def test_the_end_of_a_transaction_does_not_wait_for_a_topic_that_was_deleted(txn: Any) -> None:
    producer = await txn.start("a")
    await txn.produce("a", producer, b"1")
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    await txn.client.call(deletion, DeleteTopicsResponse, 6)
    await txn.commit("a", producer)
    assert (await txn.describe("a")).transaction_state == "CompleteCommit"


async def test_transactional_ids_expire(start_node: Any, speak: Any) -> None:
    txn = await speak(
        await start_node(
            transaction_state_log_num_partitions="2",
            transactional_id_expiration_ms="1",
            transaction_remove_expired_transaction_cleanup_interval_ms="100",
        )
    )
    await txn.prepare()
    await txn.start("a")
    async with asyncio.timeout(10):
        while (await txn.describe("a")).error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            await asyncio.sleep(0.02)


# -- what administrators ask -----------------------------------------------


async def test_transactions_are_listed_by_state_producer_duration_and_pattern(txn: Any) -> None:
    open_one = await txn.start("open")
    await txn.produce("open", open_one, b"1")
    await txn.start("idle")

    async def listed(**filters: Any) -> list[str]:
        answer = await txn.client.call(ListTransactionsRequest(**filters), ListTransactionsResponse, 2)
        assert answer.error_code == 0
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert await listed() == ["idle", "open"]
    assert await listed(state_filters=["Ongoing"]) == ["open"]
    assert await listed(producer_id_filters=[open_one[0]]) == ["open"]
    assert await listed(duration_filter=60_000) == []
    assert await listed(transactional_id_pattern="i.*") == ["idle"]
    unknown = await txn.client.call(ListTransactionsRequest(state_filters=["Odd"]), ListTransactionsResponse, 2)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Odd"], [])
    broken = await txn.client.call(ListTransactionsRequest(transactional_id_pattern="["), ListTransactionsResponse, 2)
    assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_an_administrator_ends_a_hanging_transaction(txn: Any) -> None:
    producer = await txn.start("a")
    await txn.produce("a", producer, b"1")

    async def mark(*, epoch: int, coordinator_epoch: int = 0, version: int = 0, partition: int = 0) -> ErrorCode:
        marker = WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=epoch,
            transaction_result=False,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[partition])],
        )
        answer = await txn.client.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, 2)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert await mark(epoch=0, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH  # by KIP-890 it must be a later one
    assert await mark(epoch=0, partition=99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await txn.end_offset() == 0
    assert await mark(epoch=0, coordinator_epoch=5) == ErrorCode.NONE
    assert await txn.end_offset() == 2
    assert await mark(epoch=0, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await txn.read() == []
