from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

PRODUCER_FENCED_FROM = 2
BROKERS_FROM = 4
ABORTABLE_FROM = 5

Codes = dict[tuple[str, int], int]


def wanted(topic: str, *indexes: int) -> AddPartitionsToTxnTopic:
    return AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))


async def add(
    client: Any, name: str, producer: tuple[int, int], *topics: Any, version: int, verify_only: bool = False
) -> Codes:
    """The code of each partition, in the form of any version."""
    if version < BROKERS_FROM:
        answer = await client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=list(topics),
            ),
            version,
        )
        results = answer.results_by_topic_v3_and_below
    else:
        one = transaction(name, producer, *topics, verify_only=verify_only)
        answer = await client.ask(AddPartitionsToTxnRequest(transactions=[one]), version)
        assert answer.error_code == ErrorCode.NONE
        (result,) = answer.results_by_transaction
        assert result.transactional_id == name
        results = result.topic_results
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in results
        for each in topic.results_by_partition
    }


def transaction(name: str, producer: tuple[int, int], *topics: Any, **fields: Any) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], topics=list(topics), **fields
    )


async def test_partitions_become_part_of_a_transaction(txn: Any, name: str, version: int) -> None:
    producer, topic = await txn.start(name), wanted(txn.topic, 0, 2)
    for _ in range(2):  # the second time nothing is left to do
        told = await add(txn.client, name, producer, topic, version=version)
        assert told == {(txn.topic, 0): 0, (txn.topic, 2): 0}
    described = await txn.describe(name)
    assert described.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in described.topics] == [(txn.topic, [0, 2])]


async def test_with_one_that_does_not_exist_nothing_is_added(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    told = await add(txn.client, name, producer, wanted(txn.topic, 0, 99), wanted("missing", 0), version=version)
    assert told == {
        (txn.topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (txn.topic, 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await txn.describe(name)).transaction_state == "Empty"


async def test_whoever_is_not_the_producer_is_refused(txn: Any, name: str, version: int) -> None:
    producer_id, epoch = await txn.start(name)
    fenced = ErrorCode.PRODUCER_FENCED if version >= PRODUCER_FENCED_FROM else ErrorCode.INVALID_PRODUCER_EPOCH
    for producer, code in (
        ((producer_id, epoch + 1), fenced),
        ((producer_id + 1, epoch), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        told = await add(txn.client, name, producer, wanted(txn.topic, 0), version=version)
        assert told == {(txn.topic, 0): code}
    told = await add(txn.client, "no-such-id", (producer_id, epoch), wanted(txn.topic, 0), version=version)
    assert told == {(txn.topic, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert (await txn.describe(name)).transaction_state == "Empty"


@pytest.mark.parametrize("version", range(BROKERS_FROM))  # what brokers ask for, Kafka does not check
async def test_the_coordinators_own_topic_is_refused(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    told = await add(txn.client, name, producer, wanted("__transaction_state", 0), version=version)
    assert told == {("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [BROKERS_FROM, ABORTABLE_FROM])
async def test_many_transactions_are_answered_each_by_itself(txn: Any, name: str, version: int) -> None:
    other = f"{name}-other"
    first, second = await txn.start(name), await txn.start(other)
    request = AddPartitionsToTxnRequest(
        transactions=[
            transaction(name, first, wanted(txn.topic, 0)),
            transaction(other, (second[0], second[1] + 1), wanted(txn.topic, 0)),
        ]
    )
    answer = await txn.client.ask(request, version)
    codes = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    }
    assert codes == {name: 0, other: ErrorCode.PRODUCER_FENCED}


@pytest.mark.parametrize("version", [BROKERS_FROM, ABORTABLE_FROM])
async def test_a_partition_is_only_verified(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    await add(txn.client, name, producer, wanted(txn.topic, 0), version=version)
    told = await add(txn.client, name, producer, wanted(txn.topic, 0, 1), version=version, verify_only=True)
    # A broker turns it into INVALID_TXN_STATE for a producer that does not know the code.
    assert told == {(txn.topic, 0): 0, (txn.topic, 1): ErrorCode.TRANSACTION_ABORTABLE}
    described = await txn.describe(name)
    assert [(each.topic, each.partitions) for each in described.topics] == [(txn.topic, [0])]


async def test_a_transactional_id_must_not_be_empty(txn: Any, version: int) -> None:
    told = await add(txn.client, "", (1, 0), wanted(txn.topic, 0), version=version)
    assert told == {(txn.topic, 0): ErrorCode.INVALID_REQUEST}


async def test_while_transactions_are_loaded_nothing_is_added(loading: Any, name: str, version: int) -> None:
    await loading.create(name)
    told = await add(loading, "x", (1, 0), wanted(name, 0), version=version)
    assert told == {(name, 0): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def test_a_broker_that_does_not_coordinate_says_so(client: Any) -> None:
    await client.create("t")
    for version in (0, 3, 4, 5):
        told = await add(client, "x", (1, 0), wanted("t", 0), version=version)
        assert told == {("t", 0): ErrorCode.NOT_COORDINATOR}
