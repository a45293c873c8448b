"""Telling the controller in which log directory each replica here is (AssignReplicasToDirs, KIP-858).

Only what the metadata does not say already is told: a broker with one directory has mostly nothing to tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.peers import PeerUnavailable
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

log = logging.getLogger(__name__)

BATCH_MAX: Final = 2_000
GATHER_SECONDS: Final = 0.02  # topics come with many partitions
RETRY_SECONDS: Final = 1.0

Place = tuple[bytes, int]  # topic id, partition
Tell = Callable[[Mapping[bytes, Sequence[Place]]], Awaitable[None]]  # places by directory


class Placements:
    def __init__(self, table: ReplicaTable, *, may_tell: Callable[[], bool], tell: Tell) -> None:
        """`may_tell`: whether the cluster is at a level that knows directories."""
        self._table = table
        self._may_tell = may_tell
        self._tell = tell
        self._untold: dict[Place, bytes] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, replica: Replica) -> None:
        """The replica's log is open. Where it is may be news."""
        directory = self._table.directory_of(replica)
        image = self._table.image.partition(replica.topic_id, replica.index)
        if directory is None or image is None or not self._may_tell():
            return
        if image.directory_of(self._table.node_id) == directory.id:
            self._untold.pop((replica.topic_id, replica.index), None)
            return
        self._untold[replica.topic_id, replica.index] = directory.id
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        wait = GATHER_SECONDS
        while self._untold:
            await asyncio.sleep(wait)
            batch = dict(list(self._untold.items())[:BATCH_MAX])
            try:
                await self._tell(_by_directory(batch.items()))
            except (PeerUnavailable, Refused) as error:
                log.debug("the controller was not told of %d replicas: %s", len(batch), error)
                wait = RETRY_SECONDS
                continue
            self._untold = {place: each for place, each in self._untold.items() if batch.get(place) != each}

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


def _by_directory(places: Iterable[tuple[Place, bytes]]) -> dict[bytes, list[Place]]:
    found: dict[bytes, list[Place]] = defaultdict(list)
    for place, directory in places:
        found[directory].append(place)
    return found


def placement_request(
    found: Mapping[bytes, Sequence[Place]], *, broker_id: int, broker_epoch: int
) -> AssignReplicasToDirsRequest:
    request = AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    for directory, places in found.items():
        topics: dict[bytes, TopicData] = {}
        for topic_id, index in places:
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
            topic.partitions.append(PartitionData(partition_index=index))
        request.directories.append(DirectoryData(id=directory, topics=list(topics.values())))
    return request
