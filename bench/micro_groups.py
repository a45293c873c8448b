"""Microseconds of broker CPU per Heartbeat, commit and fetch of offsets, from the frame to the encoded answer.

No socket is involved: frames go straight to the dispatcher of a node that runs in this process.
Run: python bench/micro_groups.py
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import struct
import tempfile
import time
from typing import Any

from tidemark.broker.config import load_config
from tidemark.broker.node import Node
from tidemark.broker.server.connection import Connection
from tidemark.broker.server.server import Server
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidemark.protocol.schema import api, codec

ROUNDS = 5


class Wire(Connection):
    """A connection without a socket: keeps the last answer."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, "PLAINTEXT", server._handle)
        self.handle = server._handle
        self.host, self.peer = "127.0.0.1", "127.0.0.1:1"
        self.last: Any = None

    def answer(self, parts: Any) -> None:
        self.last = parts

    def answer_whole(self, answer: bytearray) -> None:
        self.last = (answer,)

    def answer_deferred(self, deferred: Any) -> None:
        deferred.then(self.answer)

    async def ask(self, request: Any, response: type[Any], version: int) -> Any:
        self.last = None
        self.handle(self, frame_of(request, version))
        while self.last is None:
            await asyncio.sleep(0.001)
        head = 9 if version in api(response).flexible else 8
        return codec(response, version).decode(memoryview(self.last[0]), head)


def frame_of(request: Any, version: int) -> bytearray:
    described = api(type(request))
    out = bytearray(struct.pack(">hhih", described.key, version, 7, 5) + b"bench")
    if version in described.flexible:
        out.append(0)
    codec(type(request), version).encode(request, out)
    return out


def median_us(wire: Wire, frame: bytearray, count: int) -> float:
    figures = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        for _ in range(count):
            wire.handle(wire, bytearray(frame))
        figures.append((time.process_time_ns() - began) / count / 1000)
    return statistics.median(figures)


async def joined(wire: Wire, group: str) -> JoinGroupResponse:
    """One member of a stable group."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\3\0\0\0\1\0\1t\0\0\0\0")]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=45_000, protocol_type="consumer", protocols=protocols)
    joined: JoinGroupResponse = await wire.ask(request, JoinGroupResponse, 3)
    sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    await wire.ask(sync, SyncGroupResponse, 5)
    return joined


def commit_of(group: str, member: JoinGroupResponse, partitions: int) -> OffsetCommitRequest:
    asked = [OffsetCommitRequestPartition(partition_index=index, committed_offset=12345) for index in range(partitions)]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=asked)],
    )


async def run(count: int, groups: int, directory: str) -> dict[str, float]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": directory,
        "group.initial.rebalance.delay.ms": "0",
    }
    node = Node(load_config(overrides=settings))
    await node.start()
    try:
        wire = Wire(node._server)
        topic = CreatableTopic(name="orders", num_partitions=16, replication_factor=1)
        await wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        await wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse, 4)
        members = {f"group-{index}": await joined(wire, f"group-{index}") for index in range(groups)}
        group, member = next(iter(members.items()))
        alive = HeartbeatRequest(group_id=group, generation_id=member.generation_id, member_id=member.member_id)
        assert (await wire.ask(alive, HeartbeatResponse, 4)).error_code == 0
        one, many = commit_of(group, member, 1), commit_of(group, member, 16)
        answer = await wire.ask(one, OffsetCommitResponse, 9)
        assert answer.topics[0].partitions[0].error_code == 0
        wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
        await wire.ask(fetch, OffsetFetchResponse, 9)
        return {
            "Heartbeat": median_us(wire, frame_of(alive, 4), count),
            "OffsetCommit, one partition": median_us(wire, frame_of(one, 9), count),
            "OffsetCommit, 16 partitions": median_us(wire, frame_of(many, 9), count // 8),
            "OffsetFetch, one partition": median_us(wire, frame_of(fetch, 9), count),
        }
    finally:
        await node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=100, help="how many stable groups there are")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as directory:
        for name, figure in asyncio.run(run(args.count, args.groups, directory)).items():
            print(f"{name:32} {figure:8.1f} µs")


if __name__ == "__main__":
    main()
