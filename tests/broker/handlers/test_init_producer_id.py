from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest

RECOVERY_FROM = 3
PRODUCER_FENCED_FROM = 4


async def test_every_idempotent_producer_gets_an_id_of_its_own(txn: Any, version: int) -> None:
    answers = [await txn.init(None, version=version) for _ in range(3)]
    assert [(each.error_code, each.producer_epoch) for each in answers] == [(0, 0)] * 3
    assert len({each.producer_id for each in answers}) == 3


async def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(
    txn: Any, name: str, version: int
) -> None:
    first, second = await txn.init(name, version=version), await txn.init(name, version=version)
    assert (first.error_code, second.error_code) == (0, 0)
    assert second.producer_id == first.producer_id
    assert second.producer_epoch == first.producer_epoch + 1


async def test_a_new_producer_aborts_what_its_predecessor_left_open(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    await txn.add(name, producer, 0)
    assert await txn.produce(name, producer, b"lost") == ErrorCode.NONE
    while (answer := await txn.init(name, version=version)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    assert answer.error_code == ErrorCode.NONE
    assert await txn.read() == []
    assert await txn.produce(name, producer, b"late", sequence=1) in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )


@pytest.mark.parametrize("version", range(RECOVERY_FROM, 6))
async def test_a_producer_goes_on_after_an_error_with_its_id_and_epoch(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    answer = await txn.init(name, producer=producer, version=version)
    assert (answer.error_code, answer.producer_id) == (0, producer[0])
    assert answer.producer_epoch == producer[1] + 1
    code = ErrorCode.PRODUCER_FENCED if version >= PRODUCER_FENCED_FROM else ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = await txn.init(name, producer=(producer[0] + 1, producer[1]), version=version)
    assert (fenced.error_code, fenced.producer_id, fenced.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("version", range(RECOVERY_FROM, 6))
@pytest.mark.parametrize("producer", [(-1, 3), (7, -1)])
async def test_half_an_identity_is_refused(txn: Any, name: str, version: int, producer: tuple[int, int]) -> None:
    for each in (name, None):
        answer = await txn.init(each, producer=producer, version=version)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_timeout_beyond_the_limits_is_refused(txn: Any, name: str, version: int, timeout_ms: int) -> None:
    answer = await txn.init(name, timeout_ms=timeout_ms, version=version)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)
    assert (await txn.describe(name)).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_transactional_id_must_not_be_empty(txn: Any, version: int) -> None:
    answer = await txn.init("", version=version)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


async def answered(client: Any, version: int) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    answer = await client.ask(request, version)
    return answer.error_code, answer.producer_id


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert await answered(idle, version) == (ErrorCode.NOT_COORDINATOR, -1)


async def test_no_client_begins_while_transactions_are_loaded(loading: Any, version: int) -> None:
    assert await answered(loading, version) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
