"""The test of the test: bugs that are put in while a simulation runs. Each must be found within a number of seeds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from tidemark.broker.replication.replica import Replica
from tidemark.files import Files
from tidemark.raft.journal import Journal
from tidemark.storage.producers import Producers


class Bug(NamedTuple):
    patches: Callable[[], Any]
    groups: tuple[str, ...]  # faults that bring it to light
    seeds: int  # it is found within so many


def _directories_not_synced() -> Any:
    def make_directories(self: Files, path: str) -> None:
        if not self.exists(path):
            self.make_directories(os.path.dirname(path))
            self.make_directory(path)

    return patch.object(Files, "make_directories", make_directories)


def _journal_not_synced() -> Any:
    def write(self: Any, data: bytes) -> None:
        self._files.write_all(self._fd, data)
        self._size += len(data)

    return patch.object(Journal, "_write", write)


def _no_memory_of_producers() -> Any:
    return patch.object(Producers, "check", lambda self, header: None)


def _undecided_records_are_shown() -> Any:
    return patch.object(Replica, "last_stable_offset", property(lambda self: self.high_watermark))


BUGS: Final[dict[str, Bug]] = {
    "directories-not-synced": Bug(_directories_not_synced, ("power",), 4),
    "journal-not-synced": Bug(_journal_not_synced, ("power",), 4),
    "no-memory-of-producers": Bug(_no_memory_of_producers, ("crash", "network"), 8),
    "undecided-records-are-shown": Bug(_undecided_records_are_shown, ("network",), 4),
}


@contextlib.contextmanager
def plant(name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    with BUGS[name].patches():
        yield


__all__ = ["BUGS", "Bug", "plant"]
