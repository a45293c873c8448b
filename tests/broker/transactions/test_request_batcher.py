"""Requests to other brokers: collected while one is in flight, and given up when the broker is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidemark.broker.metadata.image import BrokerImage, Image
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.request_batcher import RequestBatcher


class SilentBroker:
    """Takes requests and answers the first when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.answer = asyncio.Event()

    async def send(self, _broker: int, questions: Sequence[int]) -> Sequence[str]:
        self.batches.append(list(questions))
        await self.answer.wait()
        return [f"answer {each}" for each in questions]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_questions_that_arrive_while_one_is_in_flight_go_together() -> None:
    broker, answers = SilentBroker(), list[str]()
    batcher: RequestBatcher[int, str] = RequestBatcher(send=broker.send, failed=lambda one: f"failed {one}")
    for number in (1, 2, 3):
        batcher.ask(7, number).then(answers.append)
        await settled()
    assert broker.batches == [[1]]
    broker.answer.set()
    await settled()
    assert broker.batches == [[1], [2, 3]]
    assert answers == ["answer 1", "answer 2", "answer 3"]


async def test_a_broker_that_is_given_up_is_not_waited_for() -> None:
    broker, answers = SilentBroker(), list[str]()
    batcher: RequestBatcher[int, str] = RequestBatcher(send=broker.send, failed=lambda one: f"failed {one}")
    batcher.ask(7, 1).then(answers.append)
    await settled()
    batcher.give_up(8)
    await settled()
    assert answers == []
    batcher.give_up(7)
    await settled()
    assert answers == ["failed 1"]
    broker.answer.set()
    batcher.ask(7, 2).then(answers.append)
    await settled()
    assert answers == ["failed 1", "answer 2"]


async def test_what_waits_behind_a_request_to_a_broker_that_is_given_up_is_given_up_as_well() -> None:
    """It would be sent to the same silent broker, and nobody would say a second time that it was fenced."""
    broker, answers = SilentBroker(), list[str]()
    batcher: RequestBatcher[int, str] = RequestBatcher(send=broker.send, failed=lambda one: f"failed {one}")
    for number in (1, 2, 3):
        batcher.ask(7, number).then(answers.append)
        await settled()
    batcher.give_up(7)
    await settled()
    assert sorted(answers) == ["failed 1", "failed 2", "failed 3"]
    assert broker.batches == [[1]]


BROKER = BrokerImage(broker_id=2, broker_epoch=5, rack=None, endpoints={})


@pytest.mark.parametrize(
    ("after", "gives_up"),
    [
        (BROKER, False),
        (replace(BROKER, in_controlled_shutdown=True), False),
        (replace(BROKER, fenced=True), True),
        (replace(BROKER, broker_epoch=6), True),
        (None, True),
    ],
    ids=["unchanged", "leaving", "fenced", "restarted", "gone"],
)
async def test_a_coordinator_gives_up_requests_to_a_broker_when_it_is_fenced_or_restarted(
    after: BrokerImage | None, gives_up: bool
) -> None:
    none: Any = None
    coordinator = TransactionCoordinator(markers=none, node_id=1, settings=none, replicas=none, create_topic=none)
    given_up: list[int] = []
    coordinator._others.give_up = given_up.append  # type: ignore[method-assign, assignment]
    coordinator._markers.give_up = given_up.append  # type: ignore[method-assign, assignment]
    old, new = Image(brokers={2: BROKER}), Image(brokers={} if after is None else {2: after})
    coordinator.follow(old, replace(new, topics=old.topics))
    assert given_up == ([2, 2] if gives_up else [])
