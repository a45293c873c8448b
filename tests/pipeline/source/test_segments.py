"""A partition's files, read while the broker changes them: nobody is shown what was aborted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.pipeline.source import segments
from tidemark.pipeline.source.segments import FilesUnusable, Place, SegmentFiles
from tidemark.protocol.records import EndTransaction, Record, build_batch, build_end_transaction, read_header
from tidemark.storage import Log, LogConfig, names

T0 = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two segments: one with an aborted transaction and its marker, and one that is written to."""
    log = Log.open(str(tmp_path / "t-0"), config=LogConfig(), clean=True, now_ms=lambda: T0)
    record = [Record(timestamp=T0, value=b"aborted")]
    _append(log, build_batch(record, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    _append(log, build_end_transaction(EndTransaction(7, 0, commit=False, coordinator_epoch=0), timestamp=T0))
    log.roll()
    _append(log, build_batch([Record(timestamp=T0, value=b"later")]))
    return log


def _append(log: Log, batch: bytearray) -> None:
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)


@pytest.fixture
def place(log: Log, tmp_path: Path) -> Place:
    return Place(log_dir=str(tmp_path), cluster_id="c", node_id=1, topic="t", topic_id=bytes(16), partition=0)


def test_aborted_transactions_are_known(place: Place) -> None:
    with SegmentFiles(place, first=0, end=3) as files:
        seen = [header.base_offset for _, each in files.read(files.aborted()) for header, _ in each.batches]
    assert seen == [2]


def _retention(log: Log) -> None:
    log.delete_before(2)


def _later(log: Log) -> None:
    log.delete_before(2, later=True)
    log.deletions.set_aside_all(log.files)


def _compaction(log: Log) -> None:
    """Its last step: the segment is another file by this name."""
    path = Path(log.directory) / names.file_name(0, names.LOG)
    content = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(content)


CHANGES = pytest.mark.parametrize("change", [_retention, _later, _compaction])


@CHANGES
def test_those_of_a_segment_that_has_gone_since_it_was_opened_are_not_known(
    log: Log, place: Place, change: Callable[[Log], None]
) -> None:
    with SegmentFiles(place, first=0, end=3) as files:
        change(log)
        with pytest.raises(FilesUnusable, match="is changing"):
            files.aborted()


@CHANGES
def test_nor_are_those_of_one_that_goes_meanwhile(
    log: Log, place: Place, change: Callable[[Log], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = segments._listing

    def list_and_change(directory: str) -> dict[int, int] | None:
        found = listing(directory)
        monkeypatch.undo()
        change(log)
        return found

    with SegmentFiles(place, first=0, end=3) as files:
        monkeypatch.setattr(segments, "_listing", list_and_change)
        with pytest.raises(FilesUnusable, match="is changing"):
            files.aborted()
