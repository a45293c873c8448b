"""Files that are changed by a thread of their own.

The cleaning process runs when nothing else wants to (`worker`). Whoever changes files holds locks of the file system in
between, its journal's for example: kept from running in such a moment, it would keep the broker from writing. So this
thread, which has a share of its own, does that part.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidemark.environment import new_executor
from tidemark.storage.files import Buffer, Files

P = ParamSpec("P")
T = TypeVar("T")

WRITE_BYTES = 256 << 10  # at a time: a tenth of a millisecond


class WriterThread(Files):
    def __init__(self) -> None:
        """The thread has the priority that the caller has now."""
        super().__init__()
        self._thread = new_executor(1, name="write")
        self._call(os.getpid)  # so that it begins

    def _call(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return self._thread.submit(work, *args, **options).result()

    def write(self, fd: int, data: Buffer) -> int:
        return self._call(os.write, fd, memoryview(data)[:WRITE_BYTES])

    def fdatasync(self, fd: int) -> None:
        self._call(super().fdatasync, fd)

    def open_descriptor(self, path: str, flags: int) -> int:
        return self._call(super().open_descriptor, path, flags)

    def remove(self, path: str) -> None:
        self._call(super().remove, path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._call(super().set_modified, path, modified_ms)
