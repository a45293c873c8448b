"""How many logs are opened at once at a start."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tidemark.storage import loading

DIRECTORIES, PER_DIRECTORY, PARTITIONS = 2, 3, 24


class Doorkeeper:
    """Lets nobody out before as many are in as there are threads."""

    def __init__(self, expected: int) -> None:
        self.most = 0
        self._inside = 0
        self._changed = threading.Condition()
        self._expected = expected

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._expected, timeout=30)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1


async def test_every_log_directory_has_its_recovery_threads(
    start_node: Any, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "directory": ",".join(str(tmp_path / str(number)) for number in range(DIRECTORIES)),
        "num_recovery_threads_per_data_dir": PER_DIRECTORY,
    }
    node = await start_node(**settings)
    await (await connect(node)).create("many", PARTITIONS)
    await node.stop()
    load, door = loading.load, Doorkeeper(DIRECTORIES * PER_DIRECTORY)

    def watched(*args: Any, **named: Any) -> Any:
        with door:
            return load(*args, **named)

    monkeypatch.setattr("tidemark.storage.log.loading.load", watched)
    node = await start_node(**settings)
    assert len(node._replicas.table.topics["many"].partitions) == PARTITIONS
    assert door.most == DIRECTORIES * PER_DIRECTORY
