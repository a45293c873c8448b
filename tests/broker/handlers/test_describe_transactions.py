from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_transactions import DescribeTransactionsRequest


async def describe(client: Any, *names: str) -> list[Any]:
    return list((await client.ask(DescribeTransactionsRequest(transactional_ids=list(names)))).transaction_states)


async def test_a_transaction_is_returned_with_its_producer_and_partitions(txn: Any, name: str) -> None:
    producer = await txn.start(name, timeout_ms=12_345)
    (empty,) = await describe(txn.client, name)
    assert (empty.error_code, empty.transactional_id, empty.transaction_state) == (0, name, "Empty")
    assert (empty.transaction_start_time_ms, empty.topics) == (-1, [])
    await txn.add(name, producer, 2, 0)
    await txn.add_offsets(name, producer)
    (ongoing,) = await describe(txn.client, name)
    assert ongoing.transaction_state == "Ongoing"
    assert (ongoing.producer_id, ongoing.producer_epoch) == producer
    assert ongoing.transaction_timeout_ms == 12_345
    assert ongoing.transaction_start_time_ms > 0
    told = {each.topic: sorted(each.partitions) for each in ongoing.topics}
    assert told[txn.topic] == [0, 2]
    assert set(told) == {txn.topic, "__consumer_offsets"}


async def test_the_end_of_a_transaction_is_a_state(txn: Any, name: str) -> None:
    producer = await txn.start(name)
    await txn.add(name, producer, 0)
    await txn.commit(name, producer)
    found = await txn.settled(name, "CompleteCommit")
    assert found.topics == []


async def test_ids_that_are_unknown_or_empty(txn: Any, name: str) -> None:
    await txn.start(name)
    told = {each.transactional_id: each.error_code for each in await describe(txn.client, name, "no-such-id", "")}
    assert told == {name: 0, "no-such-id": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "": ErrorCode.INVALID_REQUEST}
    assert await describe(txn.client) == []


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any) -> None:
    (told,) = await describe(idle, "x")
    assert (told.transactional_id, told.error_code) == ("x", ErrorCode.NOT_COORDINATOR)


async def test_nothing_is_returned_while_transactions_are_loaded(loading: Any) -> None:
    (told,) = await describe(loading, "x")
    assert told.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
