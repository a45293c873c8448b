"""The least of the Kafka protocol by hand: enough to ask "are you there?" without a client library's own start-up."""

import socket
import struct
import time
from collections.abc import Callable, Iterator

_METADATA, _API_VERSIONS = 3, 18


def _request(api_key: int, body: bytes) -> bytes:
    header = struct.pack(">hhih5s", api_key, 1 if api_key == _METADATA else 0, 1, 5, b"bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


# Metadata v1 with an empty list of topics: the brokers only. ApiVersions v0 has no body.
METADATA = _request(_METADATA, struct.pack(">i", 0))
ALL_METADATA = _request(_METADATA, struct.pack(">i", -1))
API_VERSIONS = _request(_API_VERSIONS, b"")


def read_frame(sock: socket.socket) -> bytes:
    size = struct.unpack(">i", _read_exactly(sock, 4))[0]
    return _read_exactly(sock, size)


def _read_exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise ConnectionError("closed by the broker")
        parts += part
    return bytes(parts)


def answers_metadata(address: tuple[str, int], *, timeout_s: float = 5.0) -> bool:
    """Whether a Metadata request is answered, now, with at least one broker."""
    try:
        with socket.create_connection(address, timeout=timeout_s) as sock:
            sock.sendall(METADATA)
            brokers: int = struct.unpack_from(">i", read_frame(sock), 4)[0]
            return brokers > 0
    except OSError:
        return False


def partitions(address: tuple[str, int], *, topics_like: str = "", timeout_s: float = 60.0) -> list[tuple[int, int]]:
    """(leader, how many are in sync) of every partition, as one node tells it."""
    with socket.create_connection(address, timeout=timeout_s) as sock:
        sock.sendall(ALL_METADATA)
        return list(_partitions(_Reader(read_frame(sock)), topics_like.encode()))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4  # after the correlation id

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def text(self) -> bytes:
        (size,) = self.take(_SHORT)
        begun = self._at
        self._at += max(size, 0)
        return self._data[begun : self._at]

    def skip_ints(self) -> int:
        """How many there are."""
        (count,) = self.take(_INT)
        self._at += 4 * count
        return count


_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_TOPIC_END, _PARTITION = struct.Struct(">bi"), struct.Struct(">hii")


def _partitions(reader: _Reader, prefix: bytes) -> Iterator[tuple[int, int]]:
    """From an answer to Metadata v1."""
    for _ in range(*reader.take(_INT)):  # brokers: id, host, port, rack
        reader.take(_INT), reader.text(), reader.take(_INT), reader.text()
    reader.take(_INT)  # the controller
    for _ in range(*reader.take(_INT)):
        reader.take(_SHORT)
        name = reader.text()
        _, count = reader.take(_TOPIC_END)
        for _ in range(count):
            _, _, leader = reader.take(_PARTITION)
            reader.skip_ints()
            isr = reader.skip_ints()
            if name.startswith(prefix):
                yield leader, isr


def wait_for_metadata(address: tuple[str, int], *, timeout_s: float, alive: Callable[[], bool]) -> None:
    """Polls every two milliseconds; a refused connection costs about 50 µs, so the polling itself is not felt."""
    deadline = time.monotonic() + timeout_s
    while not answers_metadata(address):
        if not alive():
            raise RuntimeError("the broker ended before it answered")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer from {address[0]}:{address[1]} within {timeout_s:.0f} s")
        time.sleep(0.002)
