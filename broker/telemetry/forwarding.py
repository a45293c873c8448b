"""Clients' metrics passed on to a collector, by OTLP over HTTP.

What a client pushed is passed on as it is, with what we know of the client added to its resource: in protobuf, fields
that come twice add up. One thread sends. While the collector is slow, pushes queue, up to a limit, and then are
dropped: a client never waits for it.
"""

from __future__ import annotations

import http.client
import logging
import ssl
from collections import deque
from typing import Final

from tidemark.broker.config.collectors import collector
from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.telemetry.otlp import InvalidTelemetry, fields
from tidemark.broker.telemetry.subscriptions import Client
from tidemark.environment import monotonic, new_executor

log = logging.getLogger(__name__)

QUEUED_BYTES_MAX: Final = 16 << 20
SECONDS_MAX: Final = 10.0
KEY: Final = "tidemark.telemetry.otlp.endpoint"


class Forwarder:
    def __init__(self, endpoint: str) -> None:
        """Raises ConfigError for what is no address."""
        parts = collector(endpoint, key=KEY, path="/v1/metrics")
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        self._is_secure = parts.scheme == "https"
        self._thread = new_executor(1, name="otlp")
        self._queue: deque[tuple[Client, bytes]] = deque()
        self._taken_bytes = 0  # into the queue, by the event loop …
        self._left_bytes = 0  # … and out of it, by the thread: each has a number of its own, and no lock is needed
        self._log = LimitedLog(log, clock=monotonic, lines_max=1, seconds=60.0)
        self.sent = self.failed = 0

    def __call__(self, client: Client, data: bytes) -> None:
        if self._taken_bytes - self._left_bytes + len(data) > QUEUED_BYTES_MAX:
            self.failed += 1
            return
        self._queue.append((client, data))
        self._taken_bytes += len(data)
        self._thread.submit(self._send_next)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _send_next(self) -> None:
        client, data = self._queue.popleft()
        self._left_bytes += len(data)
        try:
            self._send(with_client(client, data))
            self.sent += 1
        except (OSError, http.client.HTTPException, InvalidTelemetry) as error:
            self.failed += 1
            self._log.warning("clients' metrics do not reach %s:%s: %s", self._host, self._port, error)

    def _send(self, body: bytes) -> None:
        connection = self._connection()
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/x-protobuf"})
            answer = connection.getresponse()
            answer.read(4_096)
            if not 200 <= answer.status < 300:
                raise http.client.HTTPException(f"it answers {answer.status}")
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=SECONDS_MAX)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=SECONDS_MAX, context=context)


def with_client(client: Client, data: bytes) -> bytes:
    """The same metrics, with the client's names among the attributes of each resource."""
    known = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _field(1, value.encode(errors="replace"))))
        for name, value in client._asdict().items()
    )
    resource = _field(1, known)
    out = bytearray()
    for number, value in fields(memoryview(data)):
        if number == 1 and isinstance(value, memoryview):
            out += _field(1, bytes(value) + resource)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
