"""Long answers that their clients have not read yet. There is room for so many bytes of all of them together: if they
are more, whoever has kept us waiting longest is cut off. Clients that read are done before it is their turn."""

from __future__ import annotations

from typing import Protocol

from tidemark.broker.core.ordered_set import OrderedSet


class Reader(Protocol):
    @property
    def unsent_bytes(self) -> int: ...

    def abort(self) -> None: ...


class UnsentAnswers:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._blocked: OrderedSet[Reader] = OrderedSet()  # the one that does not read for longest first

    def count(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        too_many_bytes = self.used_bytes - self._limit_bytes
        while too_many_bytes > 0 and self._blocked:
            reader = next(iter(self._blocked))
            self._blocked.discard(reader)
            too_many_bytes -= reader.unsent_bytes
            reader.abort()

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes

    def blocked(self, reader: Reader) -> None:
        self._blocked.add(reader)

    def unblocked(self, reader: Reader) -> None:
        self._blocked.discard(reader)
