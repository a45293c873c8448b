"""The order of appends, where one has to wait until its records have been read, or until it is written.

While such an append waits, all later ones to the same partition queue behind it: the log has batches in the order in
which they arrived, which is the order of an idempotent producer's sequence numbers. Other partitions go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Final

from tidemark.broker.replication.examination import Examination
from tidemark.broker.replication.examiners import Examiners
from tidemark.broker.replication.partition import Partition, QueuedAppend, Turn
from tidemark.environment import monotonic
from tidemark.storage import PendingAppend

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.01  # of appends whose turn has come, before the loop does something else


class AppendQueues:
    def __init__(self) -> None:
        self._examiners = Examiners()
        self._ready: deque[Partition] = deque()  # the first of whose queue may have its turn
        self._is_scheduled = False
        self._stopped = False

    def join(self, partition: Partition, examination: Examination | None, turn: Turn, *, client: object = None) -> None:
        """The turn begins when everything before it has had its turn, and the examination (if any) is done."""
        if self._stopped:
            return
        if partition.append_queue is None:
            partition.append_queue = deque()
        partition.append_queue.append(QueuedAppend(examination, turn))
        if examination is not None and not examination.is_done:
            self._examiners.examine(examination, client=client, done=partial(self._wake, partition))
        elif len(partition.append_queue) == 1:
            self._wake(partition)

    def stop(self) -> None:
        """What waits is forgotten: nothing is appended from here on."""
        self._stopped = True
        self._ready.clear()
        self._examiners.stop()

    def _wake(self, partition: Partition) -> None:
        self._ready.append(partition)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_scheduled = False
        deadline = monotonic() + SLICE_SECONDS
        while self._ready:
            if monotonic() >= deadline:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._take_turns)
                return
            partition = self._ready.popleft()
            if self._take_first_turn(partition):
                self._ready.append(partition)

    def _take_first_turn(self, partition: Partition) -> bool:
        """Whether there may be another."""
        if partition.is_over:
            partition.refuse_queued()
        queue = partition.append_queue
        if not queue or not queue[0].is_examined or queue[0].is_writing:
            return False
        first = _leave(partition)
        try:
            pending = first.turn.begin()
        except Exception:
            _log_failure(partition)
            pending = None
        if pending is None:
            return partition.append_queue is not None
        self._write(partition, first, pending)
        return False

    def _write(self, partition: Partition, first: QueuedAppend, pending: PendingAppend) -> None:
        """Until it is written it stays where it was: whatever comes for the partition waits behind it."""
        first.is_writing = True
        if partition.append_queue is None:
            partition.append_queue = deque()
        partition.append_queue.appendleft(first)
        partition.writers.write(pending, partial(self._written, partition, first, pending))

    def _written(self, partition: Partition, first: QueuedAppend, pending: PendingAppend) -> None:
        if self._stopped or not first.is_writing:
            return
        first.is_writing = False
        written = _leave(partition)
        assert written is first, "appends have their turns one after the other"
        try:
            first.turn.finish(pending)
        except Exception:
            _log_failure(partition)
        if partition.append_queue is not None:
            self._wake(partition)


def _leave(partition: Partition) -> QueuedAppend:
    """The first in the queue, which leaves it."""
    queue = partition.append_queue
    assert queue, "nothing waits"
    first = queue.popleft()
    if not queue:
        partition.append_queue = None
    return first


def _log_failure(partition: Partition) -> None:
    log.exception("%s-%d: an append that waited failed", partition.topic, partition.index)
