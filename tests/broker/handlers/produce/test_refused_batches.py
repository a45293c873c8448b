"""A batch that is turned away because this node may not append just now, and those that its producer sent behind it.

They skip a sequence number. librdkafka, told so, begins a new epoch for all its partitions, and sends again what it has
no answer for, which may be in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from transactional_client import Transactional

from tidemark.broker.replication import unwritten_batches
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.remote_participants import AddPartitions
from tidemark.broker.transactions.transaction import TopicPartition
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import Record, build_batch

TOPIC = "refusing"
NOT_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
TOO_FEW = (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
SKIPPED = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


class Producer:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def send(self, *sequences: int, producer_id: int = 7) -> list[tuple[int, int]]:
        """Error and offset of each."""
        answers = []
        for sequence in sequences:
            sent = build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            answer = await self._client.produce(TOPIC, batch=sent)
            answers.append((answer.error_code, answer.base_offset))
        return answers


@pytest.fixture
async def producer(client: Any) -> Producer:
    await client.create(TOPIC)
    return Producer(client)


@contextmanager
def without_lease(node: Any) -> Iterator[None]:
    node._replicas.table.lease_until = 0.0
    yield
    node._replicas.table.lease_until = None


async def test_what_was_sent_behind_a_batch_without_a_lease_waits_for_it(node: Any, producer: Producer) -> None:
    await producer.send(0)
    with without_lease(node):
        assert await producer.send(1, 2) == [NOT_LEADER, NOT_LEADER]
    assert await producer.send(3, 4) == [NOT_LEADER, NOT_LEADER], "the client has not heard of it yet"
    assert await producer.send(1, 2, 3, 4) == [(0, 1), (0, 2), (0, 3), (0, 4)], "retried in order"
    assert await producer.send(6) == [SKIPPED], "nobody refused number 5"


async def test_likewise_where_too_few_are_in_sync_for_a_moment(node: Any, producer: Producer) -> None:
    await producer.send(0)
    led = node._replicas.table.topics[TOPIC].partitions[0]
    led.too_few_in_sync = True
    assert await producer.send(1) == [TOO_FEW]
    led.too_few_in_sync = False
    assert await producer.send(2, 1, 2) == [TOO_FEW, (0, 1), (0, 2)]


async def test_likewise_where_this_node_leads_a_moment_later(node: Any, producer: Producer) -> None:
    await producer.send(0)
    hosted = node._replicas.table.topics[TOPIC]
    node._replicas.roles._retire(hosted, 0, None)
    assert await producer.send(1) == [NOT_LEADER]
    node._replicas.roles.assign(hosted, 0)
    assert await producer.send(2, 1, 2) == [NOT_LEADER, (0, 1), (0, 2)]


async def test_a_producer_that_is_not_known_yet_begins_with_what_it_sent_first(node: Any, producer: Producer) -> None:
    with without_lease(node):
        assert await producer.send(0) == [NOT_LEADER]
    assert await producer.send(1) == [NOT_LEADER], "or number 0 would come too late, and the client could not go on"
    assert await producer.send(0, 1) == [(0, 0), (0, 1)]


async def test_a_producer_that_was_forgotten_goes_on_where_it_was(node: Any, producer: Producer) -> None:
    with without_lease(node):
        assert await producer.send(5, 6) == [NOT_LEADER, NOT_LEADER]
    assert await producer.send(6, 5, 6) == [NOT_LEADER, (0, 0), (0, 1)]


async def test_one_that_gave_its_batch_up_and_others_that_skip_a_number_are_told_so(
    node: Any, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await producer.send(0)
    await producer.send(0, producer_id=8)
    with without_lease(node):
        await producer.send(1)
    assert await producer.send(2, producer_id=8) == [SKIPPED]
    monkeypatch.setattr(unwritten_batches, "IN_FLIGHT_SECONDS_MAX", 0.0)
    assert await producer.send(2) == [SKIPPED]


# -- transactions --------------------------------------------------------


@pytest.fixture
async def transactional(client: Any) -> Transactional:
    await client.create(TOPIC)
    txn = Transactional(client, topic=TOPIC)
    await txn.prepare()
    return txn


async def send(txn: Transactional, producer: tuple[int, int], *sequences: int, version: int) -> list[ErrorCode]:
    return [await txn.produce("x", producer, b"x", sequence=each, version=version) for each in sequences]


async def test_a_transaction_begins_with_what_was_sent_first(node: Any, transactional: Transactional) -> None:
    producer = await transactional.start("x")
    with without_lease(node):
        assert await send(transactional, producer, 0, version=12) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert await send(transactional, producer, 1, 2, version=12) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert await send(transactional, producer, 0, 1, 2, version=12) == [ErrorCode.NONE] * 3
    assert await send(transactional, producer, 4, version=12) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


@pytest.mark.parametrize("version", [11, 12])
async def test_what_was_sent_behind_a_batch_that_the_coordinator_was_not_ready_for_waits_for_it(
    node: Any, transactional: Transactional, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """As while the transaction before is being ended: its next one is refused for a moment."""
    producer = await transactional.start("x")
    if version < 12:
        await transactional.add("x", producer, 0)

    def busy(_coordinator: TransactionCoordinator, asked: AddPartitions) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(asked.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)

    with monkeypatch.context() as moment:
        moment.setattr(TransactionCoordinator, "add_partitions", busy)
        assert await send(transactional, producer, 0, version=version) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await send(transactional, producer, 1, version=version) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await send(transactional, producer, 0, 1, version=version) == [ErrorCode.NONE] * 2
