"""Is there still a process behind an address?"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from tidemark.environment import new_socket

PAUSES: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # a dying process closes its sockets one after the other
CONNECT_SECONDS_MAX: Final = 1.0


async def is_gone(host: str, port: int) -> bool:
    """True only if a connection is refused: the machine answers, and says that nothing listens there.

    A paused process still has its connections accepted by the kernel, and a machine that is cut off does not answer at
    all: both are left to their session.
    """
    for pause in PAUSES:
        await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                if await _is_refused(host, port):
                    return True
        except TimeoutError:
            return False
        except OSError:
            continue
    return False


async def _is_refused(host: str, port: int) -> bool:
    """By every address that the host's name has."""
    loop = asyncio.get_running_loop()
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with new_socket(family, kind, protocol) as sock:
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, address)
            except ConnectionRefusedError:
                continue
            return False
    return True
