"""A fetch that waits until there is enough to read (`min_bytes`), or its time is over (`max_wait_ms`).

Every partition that it reads may end the wait: only what has something new is read again. So do an error, a broker that
stops, and a connection that closes, whose answer nobody would get.
"""

from __future__ import annotations

import asyncio
import logging

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.handlers.fetch.reading import Reading
from tidemark.broker.replication.replica import Replica
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchResponse

log = logging.getLogger(__name__)


class WaitingFetch:
    """A fetch that waits for bytes: every partition it reads may end the wait, and so does its timer."""

    __slots__ = ("_changed", "_loading", "_loop", "_partitions", "_reading", "_scheduled", "_timer", "answer")

    def __init__(self, reading: Reading, wait_ms_max: int) -> None:
        self.answer: Deferred[FetchResponse] = Deferred()
        self.answer.abandon = self._stop
        self._loop = asyncio.get_running_loop()
        self._reading = reading
        self._partitions = dict(reading.partitions)
        self._changed: dict[int, None] = {}  # places among what is read that have something new
        self._scheduled = False
        self._loading: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(wait_ms_max / 1000, self._finish)
        for partition in self._partitions:
            partition.watchers.add(self)

    def readable(self, partition: Replica) -> None:
        self._changed[self._partitions[partition]] = None
        if self._scheduled:
            return
        self._scheduled = True
        if self._reading.min_bytes <= 1:
            self._answer_if_due()  # a sixth less from producer to consumer than with the detour through the loop
        else:
            self._loop.call_soon(self._answer_if_due)  # what else arrives now is counted with it

    def _answer_if_due(self) -> None:
        self._scheduled = False
        if self.answer.done or self._loading is not None:
            return
        self._read(at_any_rate=self._reading.replicas.stopping)

    def _finish(self) -> None:
        self._read(at_any_rate=True)

    def _read(self, *, at_any_rate: bool) -> None:
        reading = self._reading
        try:
            changed, self._changed = self._changed, {}
            reading.read_again(changed)
            if reading.cold:
                self._stop()
                self._loading = self._loop.create_task(self._finish_cold())
                return
            if not (reading.is_due or at_any_rate):
                return
            response = reading.response()
        except Exception:  # the producer whose append woke us has done nothing wrong, and the reader must hear of it
            log.exception("a waiting fetch failed")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        self._stop()
        self.answer.resolve(response)

    async def _finish_cold(self) -> None:
        """The records that were waited for are not in memory any more. Rare, as they have just been written: so the
        answer is what there is once they are loaded."""
        try:
            await self._reading.read_cold()
            response = self._reading.response()
        except Exception:
            log.exception("a waiting fetch failed")
            response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        self.answer.resolve(response)

    def _stop(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.discard(self)
