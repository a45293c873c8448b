"""The socket of a listener, with the options that its connections inherit."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from tidemark.broker.config import BrokerConfig
from tidemark.environment import new_socket


def listening_socket(host: str, port: int, config: BrokerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = new_socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it. Without it an answer waits 40 ms for the acknowledgement of the one before.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Likewise: a client whose machine is gone is noticed, though it never says so.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Before listen, so that accepted sockets inherit it; -1 leaves it to the system, which tunes itself.
        if config.socket_receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        if config.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
        sock.bind((host, port))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def close_listening(server: asyncio.Server) -> None:
    """Nobody can connect any more, though another process may have a copy of the socket: a child that was forked a
    moment ago has not let go of it yet."""
    for listening in server.sockets:
        with contextlib.suppress(OSError):  # not every system knows this of a socket without a connection
            listening.shutdown(socket.SHUT_RDWR)
    server.close()
