"""Requests about quotas near what one may hold: how long each keeps the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import KEPT_SECONDS_MAX, LoopWatch, answered, frame_of
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from tidemark.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

MANY: Final = 50_000
ENTITIES: Final = 20_000


def absurd() -> Iterator[tuple[str, Any]]:
    one = EntityData(entity_type="user", entity_name="eve")
    op = OpData(key="producer_byte_rate", value=1e6)
    bad = [AlterationData(entity=[EntityData(entity_type="planet", entity_name=str(n))]) for n in range(MANY)]
    yield "50,000 entities that there cannot be", AlterClientQuotasRequest(entries=bad)
    same = [AlterationData(entity=[one], ops=[op])] * MANY
    yield "one entity 50,000 times", AlterClientQuotasRequest(entries=same)
    yield "one entity of 50,000 parts", AlterClientQuotasRequest(entries=[AlterationData(entity=[one] * MANY)])
    yield "50,000 changes of one", AlterClientQuotasRequest(entries=[AlterationData(entity=[one], ops=[op] * MANY)])
    components = [ComponentData(entity_type="user", match_type=0, match=str(n)) for n in range(MANY)]
    yield "a filter of 50,000", DescribeClientQuotasRequest(components=components)
    users = [EntityData(entity_type="user", entity_name=str(n)) for n in range(ENTITIES)]
    real = [AlterationData(entity=[user], ops=[op]) for user in users]
    yield "20,000 entities", AlterClientQuotasRequest(entries=real)
    yield "one more", AlterClientQuotasRequest(entries=[AlterationData(entity=[one], ops=[op])])
    yield "all of them", DescribeClientQuotasRequest()


def drive(address: tuple[str, int], watch: LoopWatch) -> dict[str, tuple[float, str]]:
    kept = {}
    for name, request in absurd():
        frame = frame_of(request, 1)
        watch.take()
        assert answered(address, frame, 1), name
        kept[name] = watch.take()
    return kept


async def test_absurd_requests_do_not_keep_the_loop(
    start_node: Any, frozen_heap: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_node()
    await node.warm_up()
    kept = await asyncio.to_thread(drive, node.address, LoopWatch(monkeypatch))
    with capsys.disabled():
        for name, (seconds, what) in kept.items():
            print(f"{seconds * 1000:8.1f} ms  {name}: {what}")
    assert {name for name, (seconds, _) in kept.items() if seconds > KEPT_SECONDS_MAX} == set()
