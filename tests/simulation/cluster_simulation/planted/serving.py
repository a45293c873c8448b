"""Bugs in how requests are served."""

from __future__ import annotations

import contextlib
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.replication.replica import Replica
from tidemark.broker.server.connection import Connection


def _a_readers_error_is_anothers() -> Any:
    """Defect 16: what an append ends for a reader is gone on with, and fails, in the call of whoever appended."""
    stack = contextlib.ExitStack()
    fail = Connection.fail

    def resolve(self: Any, value: Any) -> None:
        if not self.done:
            self.done, self._value = True, value
            listener, _ = self._take_listener()
            if listener is not None:
                listener(value)

    def wake_all(self: Any) -> None:
        for watcher in list(self.watchers):
            watcher.readable(self)

    def answered(self: Any, _: Any) -> None:
        while self._unanswered and self._unanswered[0].done:
            self._unanswered.pop(0).then(self._send_if_any)
        self._resume()

    def unguarded(self: Any, reason: str) -> None:
        if reason.startswith("a request failed here"):
            raise  # what is being handled
        fail(self, reason)

    def not_mended(_bound: Any, _response: Any, error: Exception) -> bytearray:
        raise error

    stack.enter_context(patch.object(Deferred, "resolve", resolve))
    stack.enter_context(patch.object(Replica, "wake_all", wake_all))
    stack.enter_context(patch.object(Connection, "_answered", answered))
    stack.enter_context(patch.object(Connection, "fail", unguarded))
    for module in ("dispatch", "bound_api"):
        stack.enter_context(patch(f"tidemark.broker.server.{module}.encode_mended", not_mended))
    stack.enter_context(patch("tidemark.broker.core.errors.clipped", lambda text: text))
    return stack


BUGS: Final = {
    "a-readers-error-is-anothers": Bug(
        patches=_a_readers_error_is_anothers, faults=("slow",), workloads=("hostile",), seeds=8
    ),
}
