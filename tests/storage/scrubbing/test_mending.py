"""Indexes that were made anew beside a log that went on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemark.storage import Log, mending_job, prepare, put_in_place
from tidemark.storage.segment import Segment


def test_they_are_not_given_to_a_segment_that_the_cleaner_has_put_there_meanwhile(
    tmp_path: Path, open_log: Callable[..., Log], make_batch: Any, append: Any
) -> None:
    """Even one of the same size has its batches elsewhere."""
    log = open_log()
    for _ in range(60):
        append(log, make_batch(3))
    old = next(iter(log.segments))
    mended = prepare(mending_job(log, old, []), log.files)
    new = Segment(log.files, log.directory, old.base_offset, size=old.size, created_ms=0)
    log.segments.replace([old], new)
    before = (tmp_path / "topic-0" / "00000000000000000000.index").read_bytes()
    assert not put_in_place(log, old, mended)
    assert not put_in_place(log, old, mended), "once more: what was prepared is gone"
    assert (tmp_path / "topic-0" / "00000000000000000000.index").read_bytes() == before
    assert not list((tmp_path / "topic-0").glob("*.tmp"))
    log.segments.replace([new], old)
    assert put_in_place(log, old, prepare(mending_job(log, old, []), log.files))
    assert (tmp_path / "topic-0" / "00000000000000000000.index").read_bytes() == before
