"""Is there still a process behind an address?"""

from __future__ import annotations

import asyncio
import errno
from typing import Final

PAUSES: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # a dying process closes its sockets one after the other
CONNECT_SECONDS_MAX: Final = 1.0


async def is_gone(host: str, port: int) -> bool:
    """True only if a connection is refused: the machine answers, and says that nobody listens there.

    A paused process still has its connections accepted by the kernel, and a machine that is cut off does not answer at
    all: both are left to their session.
    """
    for pause in PAUSES:
        await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return False
        except OSError as error:
            if _is_refusal(error):
                return True
            continue
        writer.transport.abort()
    return False


def _is_refusal(error: OSError) -> bool:
    # A name with several addresses gives one error for all of them.
    return isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED
