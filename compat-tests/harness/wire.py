"""One raw connection: frames by hand, bodies through kafka-python's codec (which shares nothing with the broker's).

`Wire.call` is for requests that are well formed; `Wire.send_frame` and `Wire.send` are for those that are not.
"""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any

import kafka.protocol.admin as admin_messages
import kafka.protocol.consumer as consumer_messages
import kafka.protocol.metadata as metadata_messages
import kafka.protocol.producer as producer_messages

SECONDS_MAX = 20
NO_EPOCH = -1
ZERO_ID = "00000000-0000-0000-0000-000000000000"


class Closed(Exception):
    """The broker ended the connection."""


def message_class(name: str) -> Any:
    for module in (admin_messages, consumer_messages, metadata_messages, producer_messages):
        if found := getattr(module, name, None):
            return found
    raise AssertionError(f"kafka-python has no message {name}")


def fill(cls: Any, values: dict[str, Any], *, version: int) -> Any:
    """A message from plain dicts and lists, nested as the schema says."""
    return cls(version=version, **_filled(cls._struct, values, version=version))


def _filled(struct_field: Any, values: dict[str, Any], *, version: int) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, value in values.items():
        spec = struct_field.fields[name]
        if value is None:
            filled[name] = None
        elif spec.is_struct_array():
            filled[name] = [
                spec.data_class(version=version, **_filled(spec.data_class._struct, item, version=version))
                for item in value
            ]
        elif spec.is_struct():
            filled[name] = spec.data_class(version=version, **_filled(spec.data_class._struct, value, version=version))
        else:
            filled[name] = value
    return filled


class Wire:
    """A blocking connection with a deadline on everything."""

    def __init__(self, host: str, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS_MAX)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Bytes.

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionResetError:
                raise Closed from None
            if not part:
                raise Closed
            parts += part
        return bytes(parts)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the connection; bytes that come instead are an error."""
        try:
            rest = self.socket.recv(1)
        except ConnectionResetError:
            return True
        assert rest == b"", "the broker answered instead of closing the connection"
        return True

    # Messages.

    def encode(self, name: str, version: int, *, correlation_id: int | None = None, **values: Any) -> tuple[int, bytes]:
        number = next(self._correlation_ids) if correlation_id is None else correlation_id
        request = fill(message_class(f"{name}Request"), values, version=version)
        request.with_header(correlation_id=number, client_id="wire-test")
        return number, bytes(request.encode(header=True, version=version))

    def ask(self, name: str, version: int, **values: Any) -> int:
        """Sends a request without waiting; the answer's correlation id."""
        number, body = self.encode(name, version, **values)
        self.send_frame(body)
        return number

    def answer(self, name: str, version: int, *, correlation_id: int) -> Any:
        frame = self.receive_frame()
        response = message_class(f"{name}Response").decode(frame, version=version, header=True)
        assert response.header.correlation_id == correlation_id
        return response

    def call(self, name: str, version: int, **values: Any) -> Any:
        return self.answer(name, version, correlation_id=self.ask(name, version, **values))


def header(api_key: int, version: int, correlation_id: int, *, client_id: str | None = "wire-test") -> bytes:
    """A request header of the old (not flexible) form."""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    return struct.pack(">hhi", api_key, version, correlation_id) + name
