from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest


async def allocate(cluster: Any, broker_id: int, epoch: int | None = None) -> Any:
    broker_epoch = cluster.epochs[broker_id] if epoch is None else epoch
    return await cluster.controller.ask(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch))


async def test_blocks_never_meet(cluster: Any) -> None:
    await cluster.join(2)
    taken: set[int] = set()
    for broker_id in (1, 2, 2, 1):
        answer = await allocate(cluster, broker_id)
        assert (answer.error_code, answer.producer_id_len) == (0, 1000)
        block = set(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
        assert not block & taken
        taken |= block


async def test_who_is_not_registered_under_its_epoch_gets_none(cluster: Any) -> None:
    await cluster.join(2)
    before = await allocate(cluster, 2)
    for broker_id, epoch in ((2, cluster.epochs[2] - 1), (2, -1), (4711, 1)):
        answer = await allocate(cluster, broker_id, epoch)
        assert (answer.error_code, answer.producer_id_len) == (ErrorCode.STALE_BROKER_EPOCH, 0)
    after = await allocate(cluster, 2)
    assert after.producer_id_start == before.producer_id_start + before.producer_id_len
