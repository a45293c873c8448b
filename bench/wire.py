"""The least of the Kafka protocol by hand: enough to ask "are you there?" without a client library's own start-up."""

import socket
import struct
import time
from collections.abc import Callable

_METADATA, _API_VERSIONS = 3, 18


def _request(api_key: int, body: bytes) -> bytes:
    header = struct.pack(">hhih5s", api_key, 1 if api_key == _METADATA else 0, 1, 5, b"bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


# Metadata v1 with an empty list of topics: the brokers only. ApiVersions v0 has no body.
METADATA = _request(_METADATA, struct.pack(">i", 0))
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


def wait_for_metadata(address: tuple[str, int], *, timeout_s: float, alive: Callable[[], bool]) -> None:
    """Polls every two milliseconds; a refused connection costs about 50 µs, so the polling itself is not felt."""
    deadline = time.monotonic() + timeout_s
    while not answers_metadata(address):
        if not alive():
            raise RuntimeError("the broker ended before it answered")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer from {address[0]}:{address[1]} within {timeout_s:.0f} s")
        time.sleep(0.002)
