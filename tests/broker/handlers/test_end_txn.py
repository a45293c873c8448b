from __future__ import annotations

from typing import Any

import pytest
from transactional_client import Transactional

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.end_txn import EndTxnRequest

PRODUCER_FENCED_FROM = 2
EPOCH_PER_TRANSACTION_FROM = 5


async def begin(txn: Any, name: str, *values: bytes) -> tuple[int, int]:
    producer: tuple[int, int] = await txn.start(name)
    await txn.add(name, producer, 0)
    assert await txn.produce(name, producer, *values) == ErrorCode.NONE
    return producer


@pytest.mark.parametrize(("commit", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
async def test_a_transaction_is_committed_or_aborted(
    txn: Any, name: str, version: int, commit: bool, state: str
) -> None:
    producer = await begin(txn, name, b"x")
    assert await txn.read() == []
    answer = await txn.end(name, producer, commit=commit, version=version)
    assert answer.error_code == ErrorCode.NONE
    described = await txn.settled(name, state)
    assert await txn.read() == ([b"x"] if commit else [])
    if version >= EPOCH_PER_TRANSACTION_FROM:
        assert (answer.producer_id, answer.producer_epoch) == (producer[0], producer[1] + 1)
    else:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        assert described.producer_epoch == producer[1]


async def test_an_end_may_be_repeated_but_not_turned_round(txn: Any, name: str, version: int) -> None:
    producer = await begin(txn, name, b"x")
    first = await txn.end(name, producer, commit=True, version=version)
    await txn.settled(name, "CompleteCommit")
    again = await txn.end(name, producer, commit=True, version=version)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, first.producer_epoch)
    other = await txn.end(name, producer, commit=False, version=version)
    assert other.error_code == ErrorCode.INVALID_TXN_STATE
    assert await txn.read() == [b"x"]


async def test_whoever_is_not_the_producer_ends_nothing(txn: Any, name: str, version: int) -> None:
    producer_id, epoch = await begin(txn, name, b"x")
    fenced = ErrorCode.PRODUCER_FENCED if version >= PRODUCER_FENCED_FROM else ErrorCode.INVALID_PRODUCER_EPOCH
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for who, producer, code in (
        (name, (producer_id, epoch + 1), fenced),
        (name, (producer_id + 1, epoch), unknown),
        ("no-such-id", (producer_id, epoch), unknown),
    ):
        assert (await txn.end(who, producer, commit=True, version=version)).error_code == code
    assert (await txn.describe(name)).transaction_state == "Ongoing"


async def test_what_was_not_begun_cannot_be_committed(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    answer = await txn.end(name, producer, commit=True, version=version)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE


async def test_an_abort_of_nothing_is_granted_from_version_5_on(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    answer = await txn.end(name, producer, commit=False, version=version)
    if version < EPOCH_PER_TRANSACTION_FROM:
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    else:
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, producer[1] + 1)


async def test_a_transactional_id_must_not_be_empty(txn: Any, version: int) -> None:
    assert (await txn.end("", (1, 0), commit=True, version=version)).error_code == ErrorCode.INVALID_REQUEST


REQUEST = EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert (await idle.ask(REQUEST, version)).error_code == ErrorCode.NOT_COORDINATOR


async def test_nothing_is_ended_while_transactions_are_loaded(loading: Any, version: int) -> None:
    assert (await loading.ask(REQUEST, version)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_the_last_epoch_of_a_producer_id_is_followed_by_a_new_id(client: Any, node: Any) -> None:
    await client.create("t")
    txn = Transactional(client)
    await txn.prepare()
    producer_id, _ = await txn.start("x")
    transactions = node._coordinators.transactions.find("x").shard.transactions
    last = (producer_id, 32_766)
    transactions["x"] = transactions["x"]._replace(producer_epoch=last[1])
    assert await txn.add("x", last, 0) == [ErrorCode.NONE]
    answer = await txn.end("x", last, commit=True)
    assert answer.error_code == ErrorCode.NONE
    assert answer.producer_id != producer_id
    assert answer.producer_epoch == 0
