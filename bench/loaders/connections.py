"""Opens many connections, each used once so that the broker has set it up, holds them, and uses each once more."""

import resource
import socket
import time
from collections.abc import Callable
from typing import Any

from bench import wire
from bench.loaders.process import serve

SPARE_FILES = 64


def raise_file_limit(wanted: int) -> int:
    """How many files this process may open now, at most what is wanted."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return min(limit - SPARE_FILES, wanted)


def _exchange(sock: socket.socket, request: bytes) -> bool:
    try:
        sock.sendall(request)
        return len(wire.read_frame(sock)) > 4
    except OSError:
        return False


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    host, port = parameters["address"]
    count = raise_file_limit(int(parameters["count"]))
    started = time.monotonic()
    sockets = [socket.create_connection((host, port), timeout=10.0) for _ in range(count)]
    opened = sum([_exchange(sock, wire.API_VERSIONS) for sock in sockets])
    took = time.monotonic() - started

    def work() -> dict[str, Any]:
        answered = sum([_exchange(sock, wire.METADATA) for sock in sockets])
        return {"opened": opened, "open_s": took, "answered": answered}

    return work


if __name__ == "__main__":
    serve(prepare)
