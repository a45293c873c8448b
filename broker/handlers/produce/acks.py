"""Phase two of a produce request: what was appended is acknowledged when it is as safe as `acks` asks.

- acks=-1: when it is below the high watermark; fewer in-sync replicas than `min.insync.replicas` by then is an error.
- acks=1: at once, or when it is on this broker's disk, if the topic asks for that (`flush.messages=1`).
- acks=0: there is no answer; an error closes the connection.
Later than `timeout_ms` the answer is REQUEST_TIMED_OUT: the batch is in the log and may be committed yet.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from tidemark.broker.core.deferred import Deferred, MaybeDeferred
from tidemark.broker.core.errors import CloseConnection, fault_of
from tidemark.broker.core.registry import NO_ANSWER, NoAnswer
from tidemark.broker.replication.partition import Partition
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

Answered = ProduceResponse | NoAnswer  # the latter with acks=0
ProduceAnswer = MaybeDeferred[Answered]


class Unacknowledged(NamedTuple):
    """One partition's part of a request that was appended and has to wait."""

    partition: Partition
    last_offset: int
    result: PartitionProduceResponse


def is_unacknowledged(partition: Partition, last_offset: int, acks: int) -> bool:
    """Whether the answer has to wait: with acks=-1 until the batch is committed, with acks=1 until it is on our own
    disk, if the topic asks for that."""
    return acks != 0 and last_offset >= partition.high_watermark and (acks == -1 or partition.flush_each)


def no_answer(response: ProduceResponse) -> NoAnswer:
    """With acks=0 there is no answer to carry an error: Kafka hangs up, so that the client notices."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                code = ErrorCode(result.error_code).name
                raise CloseConnection(f"a produce request with acks=0 failed: {code} {result.error_message or ''}")
    return NO_ANSWER


class PendingAcks:
    """Waits until everything that was appended is below its high watermark (with acks=1: on our own disk), or the
    request's time is up. `deferred` is the answer."""

    def __init__(
        self, response: ProduceResponse, unacknowledged: list[Unacknowledged], *, acks: int, timeout_ms: int
    ) -> None:
        self.deferred: Deferred[Answered] = Deferred()
        self._response = response
        self._left = {id(result): result for _, _, result in unacknowledged}
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for partition, last_offset, result in unacknowledged:
            reached = partial(self._reached, result)
            if acks == 1:
                partition.await_flush(last_offset, reached)
            else:
                partition.await_high_watermark(last_offset, reached, fails_below_min_isr=True)

    def _reached(self, result: PartitionProduceResponse, error: Exception | None) -> None:
        if self._left.pop(id(result), None) is None:
            return
        if error is not None:
            fault = fault_of(error, where="produce")
            result.error_code, result.error_message, result.base_offset = fault.code, fault.message, -1
        if not self._left:
            self._timer.cancel()
            self.deferred.resolve(self._response)

    def _time_out(self) -> None:
        for result in self._left.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.base_offset = -1
        self._left.clear()
        self.deferred.resolve(self._response)
