"""Every bit of every file of a log is looked at: whichever flips, it is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.protocol.records import EndTransaction, build_end_transaction
from tidemark.storage import Log, LogConfig
from tidemark.storage.checking import Finding, Known, check_log, segment_files
from tidemark.storage.files import REAL_FILES

TOPIC_ID = bytes(range(1, 17))


def findings(directory: Path, known: Known | None = None) -> list[Finding]:
    segments = segment_files(REAL_FILES, str(directory))
    steps = check_log(REAL_FILES, str(directory), segments, known or Known())
    return [each for each in steps if isinstance(each, Finding)]


@pytest.fixture
def closed_log(open_log: Callable[..., Log], make_batch, append) -> tuple[Path, Known]:
    """Two segments with a transaction that was aborted, one that was committed, and two leader epochs."""
    log = open_log(config=LogConfig(segment_bytes=600, index_interval_bytes=150), topic_id=TOPIC_ID)
    for at in range(7):
        epoch = at // 4
        append(log, make_batch(2, timestamp=1_700_000_000_000 + at * 10), leader_epoch=epoch)
        if at in (1, 5):
            append(log, make_batch(1, producer_id=7, sequence=at // 5, transactional=True), leader_epoch=epoch)
            marker = EndTransaction(producer_id=7, producer_epoch=0, commit=at == 5, coordinator_epoch=1)
            append(log, build_end_transaction(marker, timestamp=1_700_000_000_000 + at), leader_epoch=epoch)
    assert log.segment_count > 1
    log.close()
    epochs = log.epochs.entries()
    return Path(log.directory), Known(topic_id=TOPIC_ID, end_offset=log.end_offset, epochs=epochs)


def test_a_sound_log_has_no_findings(closed_log: tuple[Path, Known]) -> None:
    directory, known = closed_log
    assert findings(directory, known) == []
    assert findings(directory) == []


def test_epochs_that_the_start_of_the_log_left_behind_may_stay_in_the_file(closed_log: tuple[Path, Known]) -> None:
    directory, known = closed_log
    (first, _), (second, began) = known.epochs or ()
    for start, epochs in [
        (3, [(first, 3), (second, began)]),
        (began, [(second, began)]),
        (began + 2, [(second, began + 2)]),
        (began + 9, [(second + 1, began + 9)]),  # begins where the log ends, and has no batch yet
    ]:
        assert findings(directory, replace(known, epochs=epochs)) == [], start
    for wrong in (
        [(second, 3), (second + 1, began)],
        [(first, began + 2)],
        [(first, 3)],
        [(first, 3), (second, began + 1)],
    ):
        assert findings(directory, replace(known, epochs=wrong)), wrong


def test_every_flipped_bit_is_found(closed_log: tuple[Path, Known]) -> None:
    directory, known = closed_log
    names = sorted(path.name for path in directory.iterdir())
    assert {Path(name).suffix for name in names} >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    missed = []
    for path in sorted(directory.iterdir()):
        content = path.read_bytes()
        for at in range(len(content)):
            bit = 1 << (at * 5 + 3) % 8  # a different one at each byte: all eight would take long
            path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            found = findings(directory, known)
            is_log = path.suffix == ".log"
            if not any(not each.is_derived if is_log else each.path == str(path) for each in found):
                missed.append((path.name, at, bit))
        path.write_bytes(content)
    assert missed == []
    assert findings(directory, known) == []


def test_a_missing_segment_is_found(closed_log: tuple[Path, Known], tmp_path: Path) -> None:
    directory, _ = closed_log
    extra = tmp_path / "more"
    shutil.copytree(directory, extra)
    logs = sorted(extra.glob("*.log"))
    assert len(logs) >= 3
    logs[1].unlink()
    assert [each.reason for each in findings(extra) if not each.is_derived] == [
        f"the segment before it ends at offset {int(logs[1].stem)}"
    ]
