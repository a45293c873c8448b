"""The metadata log on this node: decide on the newest image, make it durable, show it to everyone.

A single node is a quorum of one: an entry is committed as soon as it is synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.metadata.image import Image
from broker.metadata.records import Record, decode_records, encode_records
from raft import Journal

log = logging.getLogger(__name__)

SNAPSHOT_BYTES_MIN: Final = 1 << 20  # below this a replay is instant and a snapshot not worth a file
Decide = Callable[[Image], Sequence[Record]]
Watch = Callable[[Image, Image], None]


class MetadataStore:
    def __init__(self, directory: Path) -> None:
        self._journal = Journal(directory)
        self.is_new = self._journal.last_index == 0
        self._lock = asyncio.Lock()
        self._watchers: list[Watch] = []
        self.image = self._replay()

    def watch(self, watcher: Watch) -> None:
        """`watcher(old, new)` is called after every change, in order, on the event loop."""
        self._watchers.append(watcher)

    async def change(self, decide: Decide) -> Image:
        """Commit what `decide` makes of the newest image; it may raise to refuse, and then nothing happens."""
        async with self._lock:
            records = decide(self.image)
            if records:
                await self._commit(records)
            return self.image

    async def _commit(self, records: Sequence[Record]) -> None:
        payload = encode_records(records)
        # Off the loop: a sync takes milliseconds, and the data path must not wait for it.
        await asyncio.get_running_loop().run_in_executor(None, self._write, payload)
        self._show(self.image.apply(records))

    def commit_now(self, records: Sequence[Record]) -> None:
        """As `change`, for the start of the node, when there is nobody to keep waiting."""
        self._write(encode_records(records))
        self._show(self.image.apply(records))

    def close(self) -> None:
        self._journal.close()

    def _show(self, image: Image) -> None:
        old, self.image = self.image, image
        for watcher in self._watchers:
            try:
                watcher(old, image)
            except Exception:  # one service's trouble must not hide a committed change from the others
                log.exception("a service failed to follow a metadata change")

    def _write(self, payload: bytes) -> None:
        self._journal.append([payload], term=1)

    def _replay(self) -> Image:
        image = Image()
        if self._journal.snapshot is not None:
            image = image.apply(decode_records(self._journal.snapshot))
        image = image.apply(record for entry in self._journal.replay() for record in decode_records(entry.payload))
        if self._journal.size_bytes > SNAPSHOT_BYTES_MIN:
            self._journal.save_snapshot(encode_records(image.records()))
        return image
