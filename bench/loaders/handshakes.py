"""Opens TLS connections one after the other, each with a full handshake and one request, for a time."""

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from bench import wire
from bench.loaders.process import serve


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    host, port = parameters["address"]
    context = ssl.create_default_context(cafile=parameters["ca"])

    def one() -> None:
        with (
            socket.create_connection((host, port), timeout=30.0) as plain,
            context.wrap_socket(plain, server_hostname=host) as sock,
        ):
            sock.sendall(wire.API_VERSIONS)
            wire.read_frame(sock)

    one()

    def work() -> dict[str, Any]:
        deadline, count = time.monotonic() + float(parameters["seconds"]), 0
        while time.monotonic() < deadline:
            one()
            count += 1
        return {"records": count}

    return work


if __name__ == "__main__":
    serve(prepare)
