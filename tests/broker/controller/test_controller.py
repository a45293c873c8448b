"""The active controller over a quorum of one: registrations, heartbeats, fencing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.broker.server.loop_watch import LoopWatch
from tidemark.broker.config import load_config
from tidemark.broker.controller.controller import Controller
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job, SlicedWork
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.features import SUPPORTED
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    BrokerImage,
    PartitionImage,
    partition_record,
)
from tidemark.broker.metadata.records import Record, TopicRecord
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode

TOPIC_ID = b"t" * 16


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Setup:
    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.probed: list[int] = []
        self.store = MetadataStore(path, node_id=1)
        settings = DynamicConfig(load_config(overrides={"min.insync.replicas": 2}))
        self.controller = Controller(
            self.store, settings, new_cluster_id=lambda: "a-cluster", probe=self.probed.append, time=self.clock
        )

    async def register(
        self,
        broker_id: int,
        *,
        incarnation: bytes = b"a",
        previous_epoch: int = -1,
        features: Mapping[str, tuple[int, int]] | None = None,
    ) -> int:
        wanted = BrokerImage(
            broker_id=broker_id,
            broker_epoch=-1,
            rack=None,
            endpoints={},
            incarnation_id=incarnation * 16,
            fenced=True,
            features=SUPPORTED if features is None else features,
        )
        return await self.controller.register(wanted, previous_epoch=previous_epoch, cluster_id="")

    async def heartbeat(self, broker_id: int, epoch: int, *, shut_down: bool = False) -> tuple[bool, bool, bool]:
        return await self.controller.heartbeat(
            broker_id,
            broker_epoch=epoch,
            metadata_offset=self.store.applied_index,
            want_fence=False,
            want_shut_down=shut_down,
        )

    async def join(self, broker_id: int) -> int:
        epoch = await self.register(broker_id)
        _, is_fenced, _ = await self.heartbeat(broker_id, epoch)
        assert not is_fenced
        return epoch

    async def create_topic(self, *replicas: int) -> None:
        partition = PartitionImage(
            replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=0, partition_epoch=0
        )
        records: list[Record] = [TopicRecord(name="t", topic_id=TOPIC_ID), partition_record(TOPIC_ID, 0, partition)]
        await self.store.change(lambda _image: records)

    @property
    def partition(self) -> PartitionImage:
        return self.store.image.topics["t"].partitions[0]


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    setup = Setup(tmp_path)
    await setup.store.start()
    yield setup
    setup.controller.close()
    await setup.store.close()


async def test_a_broker_of_an_older_build_is_refused_when_the_cluster_uses_a_newer_level(setup: Setup) -> None:
    with pytest.raises(Refused) as refused:
        await setup.register(2, features={"transaction.version": (0, 2)})
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert not setup.store.image.brokers


async def test_a_broker_is_fenced_until_it_has_caught_up(setup: Setup) -> None:
    epoch = await setup.register(2)
    assert setup.store.image.brokers[2].fenced
    behind = await setup.controller.heartbeat(
        2, broker_epoch=epoch, metadata_offset=epoch - 1, want_fence=False, want_shut_down=False
    )
    assert behind == (False, True, False)
    assert await setup.heartbeat(2, epoch) == (True, False, False)


async def test_a_registration_that_is_repeated_after_a_lost_answer_is_no_restart(setup: Setup) -> None:
    first = await setup.join(2)
    await setup.join(3)
    await setup.create_topic(2, 3)
    assert await setup.register(2) == first
    assert setup.partition.isr == (2, 3)
    assert setup.partition.leader == 2
    assert not setup.store.image.brokers[2].fenced


async def test_a_broker_that_was_restarted_without_a_clean_stop_is_not_eligible(setup: Setup) -> None:
    await setup.join(2)
    await setup.join(3)
    await setup.create_topic(2, 3)
    setup.clock.now += 60  # its session is over
    await setup.register(2, incarnation=b"b")
    assert setup.partition.isr == (3,)
    assert setup.partition.elr == ()


async def test_a_broker_that_stopped_cleanly_stays_eligible(setup: Setup) -> None:
    epoch = await setup.join(2)
    await setup.join(3)
    await setup.create_topic(2, 3)
    setup.clock.now += 60
    await setup.register(2, incarnation=b"b", previous_epoch=epoch)
    assert setup.partition.isr == (3,)
    assert setup.partition.elr == (2,)


async def test_a_second_broker_with_the_id_of_a_live_one_is_refused(setup: Setup) -> None:
    await setup.join(2)
    with pytest.raises(Refused) as refused:
        await setup.register(2, incarnation=b"b")
    assert refused.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_broker_that_a_probe_found_gone_is_fenced_at_once(setup: Setup) -> None:
    await setup.join(2)
    await setup.join(3)
    await setup.create_topic(2, 3)
    await setup.controller.fence_gone(setup.store.image.brokers[2], "nothing listens there")
    assert setup.store.image.brokers[2].fenced
    assert setup.partition.leader == 3


async def test_what_a_probe_says_of_an_earlier_life_does_not_count(setup: Setup) -> None:
    await setup.join(2)
    before = setup.store.image.brokers[2]
    setup.clock.now += 60
    await setup.register(2, incarnation=b"b")
    await setup.heartbeat(2, setup.store.image.brokers[2].broker_epoch)
    await setup.controller.fence_gone(before, "nothing listens there")
    assert not setup.store.image.brokers[2].fenced


async def test_a_broker_may_stop_when_others_lead_and_all_know_it(setup: Setup) -> None:
    two, three = await setup.join(2), await setup.join(3)
    await setup.create_topic(2, 3)
    await setup.heartbeat(3, three)
    _, _, may_stop = await setup.heartbeat(2, two, shut_down=True)
    assert not may_stop  # broker 3 has not seen yet that it leads
    assert setup.partition.leader == 3
    await setup.heartbeat(3, three)
    _, _, may_stop = await setup.heartbeat(2, two, shut_down=True)
    assert may_stop


async def test_a_heartbeat_of_an_earlier_epoch_is_refused(setup: Setup) -> None:
    epoch = await setup.join(2)
    with pytest.raises(Refused) as refused:
        await setup.heartbeat(2, epoch - 1)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_new_controller_gives_the_cluster_an_id_and_a_min_isr_and_probes_every_broker(setup: Setup) -> None:
    await setup.join(2)
    image = setup.store.image
    assert image.cluster_id == "a-cluster"
    assert image.config_of(BROKER_RESOURCE, CLUSTER_DEFAULT) == {"min.insync.replicas": "2"}
    setup.controller._controller_changed(1)
    await setup.store.change(lambda _image: [])
    await setup.controller._begin()
    assert 2 in setup.probed


@pytest.mark.usefixtures("frozen_heap")
async def test_all_partitions_of_a_broker_change_their_leader_while_others_are_served(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 partitions the decision takes 140 ms, and was made at one go."""
    epochs = {broker_id: await setup.join(broker_id) for broker_id in (2, 3)}
    both = PartitionImage(replicas=(2, 3), isr=(2, 3), leader=2, leader_epoch=0, partition_epoch=0)
    await setup.store.change(
        lambda _image: [
            TopicRecord(name="t", topic_id=TOPIC_ID),
            *(partition_record(TOPIC_ID, index, both) for index in range(4_000)),
        ]
    )
    watch = LoopWatch(monkeypatch)
    await setup.heartbeat(2, epochs[2], shut_down=True)
    assert {each.leader for each in setup.store.image.topics["t"].partitions} == {3}
    assert watch.take()[0] < 0.04


async def test_what_clients_ask_for_does_not_hold_up_a_change_of_leaders(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = {broker_id: await setup.join(broker_id) for broker_id in (2, 3)}
    await setup.create_topic(2, 3)
    shared = SlicedWork()
    monkeypatch.setattr(asyncio.get_running_loop(), "shared_work", shared, raising=False)
    is_over = False

    def without_end() -> Job[None]:
        while not is_over:
            yield

    for _ in range(50):
        shared.add(without_end())
    monkeypatch.setattr(shared, "finish_in_turn", None)
    await setup.heartbeat(2, epochs[2], shut_down=True)
    assert setup.partition.leader == 3
    is_over = True
