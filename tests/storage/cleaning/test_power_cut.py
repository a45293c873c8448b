"""The power fails while a log is cleaned: what is left on the disk is the old segments or the new ones, never less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.protocol.records import Record, build_batch, iter_records, read_header
from tidemark.storage import Log, LogConfig

T0 = 1_700_000_000_000
KEYS = 9
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300, compact=True, delete=False, file_delete_delay_ms=0)


def fill(log: Log) -> dict[bytes, bytes | None]:
    last: dict[bytes, bytes | None] = {}
    for number in range(120):
        key = b"key%d" % (number % KEYS)
        last[key] = b"%d" % number * 20
        batch = build_batch([Record(timestamp=T0 + number, key=key, value=last[key])], compression=number % 3)
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    return last


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_power_cut_leaves_every_key_has_its_last_value(
    tmp_path: Path, faulty_files: type[Any], compact_log: Any, read_batches: Any, seed: int
) -> None:
    random = Random(seed)
    disk = tmp_path / "disk"
    states: list[Path] = []

    class Watched(faulty_files):  # type: ignore[misc]
        is_watched = False

        def cut(self) -> None:
            if self.is_watched and random.random() < 0.5:
                states.append(tmp_path / f"left-{len(states)}")
                self.power_cut(random, states[-1])

    for name in ("rename", "remove", "fdatasync", "sync_directory", "set_modified"):
        _watch(Watched, name)
    files = Watched(disk)
    disk.mkdir()
    log = Log.open(str(disk / "t-0"), config=CONFIG, files=files, clean=True, now_ms=lambda: T0)
    last = fill(log)
    log.flush()
    files.sync_directory(str(disk))
    recovery_point = log.recovery_point
    files.is_watched = True
    compact_log(log)
    log.remove_deleted(T0 + 1)
    log.flush()
    assert len(states) > 8
    for state in states:
        for _ in range(2):  # opening it is interrupted by nothing, and changes nothing that counts
            left = Log.open(
                str(state / "t-0"), config=CONFIG, clean=False, recovery_point=recovery_point, now_ms=lambda: T0
            )
            found = {record.key: record.value for _, batch in read_batches(left) for record in iter_records(batch)}
            assert found == last
            assert left.end_offset == 120
            left.close(clean=False)


def _watch(kind: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(kind, name)

    def call(self: Any, *args: Any) -> Any:
        self.cut()
        return original(self, *args)

    setattr(kind, name, call)
