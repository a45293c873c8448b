"""The answer to a produce request that is refused, or wants none, or whose acknowledgement is not due at once."""

from __future__ import annotations

import asyncio
from functools import partial

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import CloseConnection, Fault, fault_of
from tidemark.broker.core.registry import NO_ANSWER
from tidemark.broker.replication.partition import Partition
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse


def refuse(result: PartitionProduceResponse, fault: Fault) -> None:
    result.error_code, result.error_message, indexes = fault
    result.base_offset = -1
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=fault.message) for index in indexes
    ]


def no_answer(response: ProduceResponse) -> object:
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                # With acks=0 there is no answer to carry the error: Kafka hangs up, so that the client notices.
                code = ErrorCode(result.error_code).name
                raise CloseConnection(f"a produce request with acks=0 failed: {code} {result.error_message or ''}")
    return NO_ANSWER


class Acknowledging:
    """Waits until everything that was appended is below its high watermark (with acks=1: on our own disk), or the
    request's time is up."""

    def __init__(
        self,
        response: ProduceResponse,
        due: list[tuple[Partition, int, PartitionProduceResponse]],
        *,
        acks: int,
        timeout_ms: int,
    ) -> None:
        self.later: Deferred[ProduceResponse] = Deferred()
        self._response = response
        self._left = {id(result): result for _, _, result in due}
        self._timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for partition, last_offset, result in due:
            reached = partial(self._reached, result)
            if acks == 1:
                partition.await_flush(last_offset, reached)
            else:
                partition.await_high_watermark(last_offset, reached, fails_below_min_isr=True)

    def _reached(self, result: PartitionProduceResponse, error: Exception | None) -> None:
        if self._left.pop(id(result), None) is None:
            return
        if error is not None:
            refuse(result, fault_of(error, where="produce"))
        if not self._left:
            self._timer.cancel()
            self.later.resolve(self._response)

    def _time_out(self) -> None:
        for result in self._left.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.base_offset = -1
        self._left.clear()
        self.later.resolve(self._response)
