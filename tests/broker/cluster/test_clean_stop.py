"""A broker that stopped cleanly keeps its place among the eligible leaders; one whose data may be gone must not."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness.ports import free_port

from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import UNASSIGNED
from tidemark.broker.node import Node
from tidemark.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.storage import Files

SECONDS_MAX = 20
VOTERS = (1, 2, 3)
BROKERS = (1, 2, 3, 4)  # the records are on 1, 2 and 4; 3 keeps the quorum going


class FourNodes:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.ports = {each: free_port() for each in BROKERS}
        self.own_ports = {each: free_port() for each in BROKERS}
        self.running: dict[int, Node] = {}

    async def start(self, node_id: int) -> None:
        voters = ",".join(f"{each}@127.0.0.1:{self.own_ports[each]}" for each in VOTERS)
        config = load_config(
            None,
            {
                "node.id": node_id,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node_id]},CONTROLLER://127.0.0.1:{self.own_ports[node_id]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "log.dirs": self.path / f"data-{node_id}",
                "metadata.log.dir": self.path / f"metadata-{node_id}",
                "broker.heartbeat.interval.ms": 100,
            },
        )
        node = self.running[node_id] = Node(config)
        await asyncio.wait_for(node.start(), SECONDS_MAX)

    async def stop(self, node_id: int) -> None:
        await asyncio.wait_for(self.running.pop(node_id).stop(), SECONDS_MAX)

    def partition(self, seen_by: int) -> Any:
        return self.running[seen_by]._store.image.topics["t"].partitions[0]

    def records_led_by(self, node_id: int) -> int:
        try:
            return self.running[node_id]._replicas.table.leader_of("t", 0).log.end_offset
        except Refused:
            return -1

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[FourNodes]:
    nodes = FourNodes(tmp_path)
    await asyncio.gather(*map(nodes.start, BROKERS))
    yield nodes
    for node_id in list(nodes.running):
        await nodes.stop(node_id)


def produce_six(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for each in range(6):
        producer.produce("t", str(each), partition=0)
    assert producer.flush(SECONDS_MAX) == 0


async def fill_and_stop_all_but_the_last_leader(nodes: FourNodes, connect: Any) -> None:
    """Six records are on 1, 2 and 4. Then 4 stops, and 2: the records are safe on 1, and 2 is eligible to lead."""
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 4])],
        configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )
    client = await connect(nodes.running[1])
    answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0
    await nodes.until(lambda: len(nodes.partition(1).isr) == 3)
    await asyncio.to_thread(produce_six, f"127.0.0.1:{nodes.ports[1]}")
    await nodes.stop(4)
    await nodes.until(lambda: set(nodes.partition(3).isr) == {1, 2})


async def check_that_two_waits_for_one(nodes: FourNodes) -> None:
    await nodes.stop(1)
    await nodes.start(2)
    await nodes.until(lambda: nodes.running[2]._store.image.brokers[2].is_active)
    assert nodes.partition(2).leader == -1, "2 leads without the records"
    await nodes.start(1)
    await nodes.until(lambda: nodes.partition(2).leader == 1)
    await nodes.until(lambda: nodes.records_led_by(1) == 6)


async def test_a_broker_that_stopped_cleanly_may_lead(nodes: FourNodes, connect: Any) -> None:
    await fill_and_stop_all_but_the_last_leader(nodes, connect)
    await nodes.stop(2)
    await nodes.until(lambda: set(nodes.partition(3).elr) == {2})
    await nodes.stop(1)
    await nodes.start(2)
    await nodes.until(lambda: nodes.partition(2).leader == 2)
    await nodes.until(lambda: nodes.records_led_by(2) == 6)


async def test_a_broker_whose_disk_was_replaced_after_a_clean_stop_is_not_elected(
    nodes: FourNodes, connect: Any
) -> None:
    await fill_and_stop_all_but_the_last_leader(nodes, connect)
    await nodes.stop(2)
    await nodes.until(lambda: set(nodes.partition(3).elr) == {2})
    shutil.rmtree(nodes.path / "data-2")
    await check_that_two_waits_for_one(nodes)


async def test_a_broker_whose_logs_could_not_be_synced_at_its_stop_is_not_elected(
    nodes: FourNodes, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_and_stop_all_but_the_last_leader(nodes, connect)

    sync = Files.fdatasync

    def broken(fd: int) -> None:
        """The disk of the logs, not the one of the metadata."""
        if "tidemark-metadata" not in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(5, "Input/output error")
        sync(fd)

    with monkeypatch.context() as disk:
        disk.setattr(Files, "fdatasync", staticmethod(broken))
        await nodes.stop(2)
    await nodes.until(lambda: set(nodes.partition(3).elr) == {2})
    await check_that_two_waits_for_one(nodes)


async def test_the_last_leader_is_not_elected_with_an_empty_disk_when_the_other_was_killed(
    nodes: FourNodes, connect: Any
) -> None:
    """The other has everything, but stopped uncleanly. By KIP-966 the last leader may lead then, whatever it has."""
    await fill_and_stop_all_but_the_last_leader(nodes, connect)
    await nodes.stop(2)
    await nodes.until(lambda: set(nodes.partition(3).elr) == {2})
    before = nodes.partition(3).directory_of(1)
    await nodes.stop(1)
    (nodes.path / "data-2" / ".kafka_cleanshutdown").unlink()  # as a kill would have left it
    shutil.rmtree(nodes.path / "data-1")
    await nodes.start(1)
    await nodes.until(lambda: nodes.running[1]._store.image.brokers[1].is_active)
    await nodes.until(lambda: nodes.partition(1).directory_of(1) not in (before, UNASSIGNED))
    await nodes.start(2)
    await nodes.until(lambda: nodes.partition(1).leader != -1)
    assert nodes.partition(1).leader == 2
    await nodes.until(lambda: nodes.records_led_by(2) == 6)
