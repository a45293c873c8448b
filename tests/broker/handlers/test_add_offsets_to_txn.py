from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

PRODUCER_FENCED_FROM = 2


async def test_the_partition_of_the_groups_offsets_becomes_part_of_the_transaction(
    txn: Any, name: str, version: int
) -> None:
    producer = await txn.start(name)
    for _ in range(2):
        assert await txn.add_offsets(name, producer, version=version) == ErrorCode.NONE
    described = await txn.describe(name)
    assert described.transaction_state == "Ongoing"
    ((topic, partitions),) = [(each.topic, each.partitions) for each in described.topics]
    assert (topic, len(partitions)) == ("__consumer_offsets", 1)


async def test_whoever_is_not_the_producer_is_refused(txn: Any, name: str, version: int) -> None:
    producer_id, epoch = await txn.start(name)
    fenced = ErrorCode.PRODUCER_FENCED if version >= PRODUCER_FENCED_FROM else ErrorCode.INVALID_PRODUCER_EPOCH
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await txn.add_offsets(name, (producer_id, epoch + 1), version=version) == fenced
    assert await txn.add_offsets(name, (producer_id + 1, epoch), version=version) == unknown
    assert await txn.add_offsets("no-such-id", (producer_id, epoch), version=version) == unknown
    assert (await txn.describe(name)).transaction_state == "Empty"


async def test_a_transactional_id_must_not_be_empty(txn: Any, version: int) -> None:
    assert await txn.add_offsets("", (1, 0), version=version) == ErrorCode.INVALID_REQUEST


async def answered(client: Any, version: int) -> int:
    request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g")
    return int((await client.ask(request, version)).error_code)


async def test_a_broker_that_does_not_coordinate_says_so(client: Any, node: Any) -> None:
    for version in range(5):
        assert await answered(client, version) == ErrorCode.NOT_COORDINATOR
    assert set(node._store.image.topics) == {"__consumer_offsets"}  # which the transaction is to hold


async def test_while_transactions_are_loaded_nothing_is_added(loading: Any, version: int) -> None:
    assert await answered(loading, version) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
