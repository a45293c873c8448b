"""What a forked child inherits of an embedded broker: descriptors of sockets, but not the thread that serves them.

While a child holds them, a client's connection stays open though the broker has closed it, and its port stays taken. So
a child lets go of them at once. Each descriptor is pointed at /dev/null rather than closed: Python objects still refer
to its number, and would later close whatever file had got that number since.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from tidemark._embedded import EmbeddedBroker

_brokers: WeakSet[EmbeddedBroker] = WeakSet()


def watch(broker: EmbeddedBroker) -> None:
    _brokers.add(broker)


def _let_go_in_child() -> None:
    for broker in list(_brokers):
        _point_at_nothing({*broker.registered_descriptors(), *_sockets_on(broker.port)})
    _brokers.clear()


def _point_at_nothing(descriptors: Iterable[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for each in descriptors:
        os.dup2(nothing, each, inheritable=False)
    os.close(nothing)


def _sockets_on(port: int) -> Iterator[int]:
    """Descriptors of the sockets on our side of a connection; the event loop does not list those that are paused."""
    for name in os.listdir("/dev/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode) and _local_port(int(name)) == port:
                yield int(name)
        except OSError:  # closed since, or a socket of another kind
            continue


def _local_port(descriptor: int) -> int | None:
    with socket.socket(fileno=os.dup(descriptor)) as found:
        name = found.getsockname()
    return name[1] if isinstance(name, tuple) and len(name) > 1 else None


os.register_at_fork(after_in_child=_let_go_in_child)
