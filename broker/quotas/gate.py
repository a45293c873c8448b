"""Between dispatch and handlers, while there are quotas: what a client uses is counted, and one that uses too much is
told so in its answer and then not listened to for that long (KIP-219).

The answer leaves at once. A produce request counts when it arrives, with its whole size; a fetch when it is answered,
with the records in it; the time of the event loop after each request, so that it is the next answer that tells. What
brokers send to each other is not counted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from tidemark.broker.core.answers import when_answered
from tidemark.broker.core.deferred import Answer
from tidemark.broker.core.registry import NO_ANSWER, Call, Handler, Route
from tidemark.broker.quotas.meter import Meter
from tidemark.broker.quotas.service import Quotas, milliseconds

Quick = Callable[[bytearray, int, Call], Answer[Any]]
T = TypeVar("T")

# What nodes send to each other on a listener for clients, beside the fetches of followers; from this version on.
OF_NODES: Final = {"WriteTxnMarkers": 0, "AddPartitionsToTxn": 4}
FRAME_SIZE_BYTES: Final = 4
_put_throttle_time = struct.Struct(">i").pack_into
THROTTLE_TIME_FROM_END: Final = 5  # of a quick answer to Produce: throttle_time_ms, no tags


class Gate:
    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def handler(self, route: Route, version: int, handle: Handler) -> Handler:
        if version >= OF_NODES.get(route.name, version + 1):
            return handle
        if route.name == "Produce":
            return partial(self._produce, handle)
        if route.name == "Fetch":
            return partial(self._fetch, handle)
        return partial(self._other, handle)

    def quick(self, quick: Quick | None) -> Quick:
        """Of Produce: every request comes here first, with its size."""
        quotas = self._quotas

        def metered(frame: bytearray, position: int, call: Call) -> Answer[Any]:
            connection = call.connection
            meter: Meter | None = connection.meter
            if meter is None or meter.epoch != quotas.epoch:
                meter = quotas.meter_of(connection)
            seconds = meter.produced(len(frame) + FRAME_SIZE_BYTES)
            if (of_time := meter.request) is not None and of_time.unsettled >= of_time.settled_from:
                seconds = max(seconds, of_time.settle())
            response = None if quick is None else quick(frame, position, call)
            if response is None:
                connection.throttle_seconds = seconds  # for `_produce`, which comes next
            elif seconds:
                response = self._tell(connection, meter, seconds, response)
            return response

        return metered

    def _tell(self, connection: Any, meter: Meter, seconds: float, response: Answer[Any]) -> Answer[Any]:
        throttle_ms = self._throttle(connection, meter, seconds)
        if type(response) is bytearray:
            _put_throttle_time(response, len(response) - THROTTLE_TIME_FROM_END, throttle_ms)
            return response
        return when_answered(response, partial(_with_throttle_time, throttle_ms))

    # -- handlers ----------------------------------------------------------

    def _produce(self, handle: Handler, request: Any, call: Call) -> Answer[Any]:
        connection = call.connection
        seconds, connection.throttle_seconds = connection.throttle_seconds, 0.0
        response = handle(request, call)
        if not seconds:
            return response
        return self._tell(connection, self._quotas.meter_of(connection), seconds, response)

    def _fetch(self, handle: Handler, request: Any, call: Call) -> Answer[Any]:
        connection = call.connection
        if request.replica_state.replica_id >= 0:
            return handle(request, call)
        meter = self._quotas.meter_of(connection)
        if meter.fetch is not None:  # as in Kafka: no more at once than the quota allows in all windows
            request.max_bytes = min(request.max_bytes, max(int(meter.fetch.most), 1))
        return when_answered(handle(request, call), partial(self._fetched, connection))

    def _fetched(self, connection: Any, response: T) -> T:
        meter = self._quotas.meter_of(connection)
        seconds = meter.fetched(_records_bytes(response))
        return self._answered(connection, meter, max(seconds, meter.time_used()), response)

    def _other(self, handle: Handler, request: Any, call: Call) -> Answer[Any]:
        connection = call.connection
        if connection.is_peer or getattr(request, "replica_id", -1) >= 0:  # OffsetForLeaderEpoch of a follower
            return handle(request, call)
        self._quotas.meter_of(connection)  # which the time of this request counts on
        return when_answered(handle(request, call), partial(self._other_answered, connection))

    def _other_answered(self, connection: Any, response: T) -> T:
        meter = self._quotas.meter_of(connection)
        told_ms = getattr(response, "throttle_time_ms", 0)  # by the controller, which this was passed on to
        return self._answered(connection, meter, max(meter.time_used(), told_ms / 1000), response)

    def _answered(self, connection: Any, meter: Meter, seconds: float, response: T) -> T:
        return _with_throttle_time(self._throttle(connection, meter, seconds), response) if seconds else response

    # -- waiting -----------------------------------------------------------

    def _throttle(self, connection: Any, meter: Meter, seconds: float) -> int:
        """Stop listening to the client for a while; returns what it is told."""
        throttle_ms = milliseconds(seconds)
        if throttle_ms:
            meter.told_to_wait(throttle_ms / 1000)
            connection.mute(throttle_ms / 1000)
        return throttle_ms


def _with_throttle_time(throttle_ms: int, response: T) -> T:
    if response is not NO_ANSWER and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)
    return response


def _records_bytes(response: Any) -> int:
    size = 0
    for topic in response.responses:
        for partition in topic.partitions:
            records = partition.records
            if type(records) is list:
                size += sum(map(len, records))
            elif records:
                size += len(records)
    return size
