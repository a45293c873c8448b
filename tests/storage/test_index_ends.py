"""After a clean stop only the ends of the active segment's indexes are read. The rest is read, and checked, when
something is looked up: nothing that was written in between is lost, and nothing wrong is believed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.protocol.records import iter_batches
from tidemark.storage import REAL_FILES, ColdRead, Files, Log, LogConfig
from tidemark.storage.checking import Finding
from tidemark.storage.tools.places import find_partitions
from tidemark.storage.tools.verify import verify

T0 = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1 << 24, index_interval_bytes=200)
INDEXES = ("00000000000000000000.index", "00000000000000000000.timeindex")

Fill = Callable[..., None]


@pytest.fixture
def fill(make_batch: Any, append: Any) -> Fill:
    """Appends batches of three records, each a second later than the one before."""

    def fill_(log: Log, count: int = 40) -> None:
        for _ in range(count):
            append(log, make_batch(3, size=50, timestamp=T0 + log.end_offset * 1000))

    return fill_


@pytest.fixture
def closed(open_log: Any, fill: Fill, tmp_path: Path) -> Path:
    """The directory of a log that was closed cleanly, with 120 records in one segment."""
    log = open_log(config=CONFIG)
    fill(log)
    log.close()
    return tmp_path / "topic-0"


@pytest.fixture
def reopened(open_log: Any, closed: Path) -> Log:
    log: Log = open_log(config=CONFIG)
    return log


def check(log: Log, read_batches: Any, *, count: int) -> None:
    """Everything is found from every offset and every time, and the files are sound once the log is closed."""
    assert log.end_offset == count * 3
    for offset in range(0, log.end_offset, 3):
        header, _ = next(iter(read_batches(log, offset=offset, limit_bytes=300)))
        assert header.base_offset == offset
        found = log.offset_for_timestamp(T0 + offset * 1000)
        assert found is not None
        assert found.offset == offset
    log.close()
    assert findings(log.directory) == []


def findings(directory: str) -> list[Finding]:
    (place,) = find_partitions(REAL_FILES, directory)
    return [each for each in verify(place) if isinstance(each, Finding)]


class CountedFiles(Files):
    """Counts what is read from files, and what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.calls = 0

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = os.pread(fd, length, position)
        self.bytes_read += len(data)
        self.calls += 1
        return data


def test_opening_after_a_clean_stop_reads_the_same_however_much_there_is(open_log: Any, fill: Fill) -> None:
    read = {}
    for count in (300, 3000):
        log = open_log(f"topic-{count}", config=CONFIG)
        fill(log, count)
        log.close()
        files = CountedFiles()
        open_log(f"topic-{count}", config=CONFIG, files=files)
        read[count] = files.bytes_read, files.calls
    assert abs(read[3000][0] - read[300][0]) < 1000  # where the last index entry lies, by chance
    assert abs(read[3000][1] - read[300][1]) <= 1


def test_what_is_written_before_anything_is_looked_up_is_found(reopened: Log, fill: Fill, read_batches: Any) -> None:
    fill(reopened, 30)
    check(reopened, read_batches, count=70)


def test_a_log_that_is_only_written_to_keeps_sound_indexes_from_start_to_start(
    open_log: Any, fill: Fill, read_batches: Any
) -> None:
    for starts in range(5):
        log = open_log(config=CONFIG)
        fill(log, starts + 1)
        log.close()
        assert findings(log.directory) == []
    check(open_log(config=CONFIG), read_batches, count=15)


def test_a_roll_leaves_the_old_segment_whole(open_log: Any, reopened: Log, fill: Fill, read_batches: Any) -> None:
    fill(reopened, 5)
    reopened.roll()
    fill(reopened, 5)
    check(reopened, read_batches, count=50)


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("entry", [0, 7, -2])
def test_damage_before_the_end_is_found_when_it_is_looked_up(
    name: str, entry: int, closed: Path, open_log: Any, fill: Fill, read_batches: Any
) -> None:
    path = closed / name
    size = 8 if name.endswith(".index") else 12
    data = bytearray(path.read_bytes())
    at = entry * size if entry >= 0 else len(data) + entry * size
    data[at : at + size] = b"\x7f" * size
    path.write_bytes(data)
    again = open_log(config=CONFIG)
    fill(again, 20)
    check(again, read_batches, count=60)


@pytest.mark.parametrize("name", INDEXES)
def test_an_end_that_is_not_of_this_log_is_found_at_the_start(
    name: str, closed: Path, open_log: Any, read_batches: Any
) -> None:
    """It would be the place where the next start begins to read, and where the next entry is compared to."""
    path = closed / name
    for offset_at in (-8, -4) if name.endswith(".index") else (-12, -4):
        sound = path.read_bytes()
        data = bytearray(sound)
        where = len(data) + offset_at
        wrong = int.from_bytes(data[where : where + 4], "big") + (1 if offset_at == -4 else 1 << 16)
        data[where : where + 4] = wrong.to_bytes(4, "big")
        path.write_bytes(data)
        again = open_log(config=CONFIG)
        assert again.end_offset == 120
        again.close(clean=False)
        path.write_bytes(sound)
    check(open_log(config=CONFIG), read_batches, count=40)


def test_a_file_that_lost_its_beginning_is_made_anew(
    tmp_path: Path, open_log: Any, reopened: Log, fill: Fill, read_batches: Any
) -> None:
    for name in INDEXES:
        (tmp_path / "topic-0" / name).write_bytes(b"")
    fill(reopened, 3)
    check(reopened, read_batches, count=43)


@pytest.mark.parametrize("room", range(0, 40, 3))
def test_a_disk_that_took_a_part_of_the_new_entries_leaves_sound_indexes(
    room: int, closed: Path, tmp_path: Path, open_log: Any, fill: Fill, faulty_files: Any, read_batches: Any
) -> None:
    files = faulty_files(tmp_path)
    again = open_log(config=CONFIG, files=files)
    fill(again, 10)
    files.room = room
    with pytest.raises(OSError, match="full"):
        again.segments.active.seal()
    files.room = None
    fill(again, 10)
    check(again, read_batches, count=60)


def read_with_appends(log: Log, append_more: Callable[[], None], *, offset: int) -> int:
    """Reads without waiting for the disk, and goes on writing while another thread loads; how often it loaded."""
    for loads in range(20):
        try:
            assert log.read(offset=offset, limit_bytes=300, wait=False)
            return loads
        except ColdRead as cold:
            loader = threading.Thread(target=cold.load)
            loader.start()
            append_more()
            loader.join()
            cold.finish()
    raise AssertionError("it is never loaded")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_read_has_the_index_loaded_elsewhere_while_the_log_is_written_to(
    damaged: bool, tmp_path: Path, reopened: Log, fill: Fill, read_batches: Any
) -> None:
    if damaged:
        for name in INDEXES:
            path = tmp_path / "topic-0" / name
            path.write_bytes(b"\x7f" * 24 + path.read_bytes()[24:])
    fill(reopened, 1)
    loads = read_with_appends(reopened, lambda: fill(reopened, 10), offset=60)
    assert loads > 0
    assert read_with_appends(reopened, lambda: None, offset=30) == 0, "the whole index is in memory"
    check(reopened, read_batches, count=41 + 10 * loads)


def test_a_search_by_time_keeps_what_it_has_read(reopened: Log, fill: Fill, read_batches: Any) -> None:
    search = reopened.begin_search(T0 + 60 * 1000)
    fill(reopened, 10)
    found = search()
    search.finish()
    assert found is not None
    assert found.offset == 60
    times = reopened.segments.active.indexes.times
    assert times is not None
    assert not times.skipped
    check(reopened, read_batches, count=50)


def test_a_truncation_right_after_the_start(reopened: Log, fill: Fill, read_batches: Any) -> None:
    reopened.truncate_to(60)
    fill(reopened, 10)
    check(reopened, read_batches, count=30)


def test_what_a_copy_loaded_before_a_truncation_is_not_taken_over(reopened: Log, fill: Fill, read_batches: Any) -> None:
    with pytest.raises(ColdRead) as raised:
        reopened.read(offset=60, limit_bytes=300, wait=False)
    raised.value.load()
    reopened.truncate_to(30)
    fill(reopened, 40)
    raised.value.finish()
    check(reopened, read_batches, count=50)


def cold_read(log: Log, *, offset: int) -> ColdRead:
    with pytest.raises(ColdRead) as raised:
        log.read(offset=offset, limit_bytes=300, wait=False)
    return raised.value


def damage(path: Path, *, at: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + 24] = b"\x7f" * 24
    path.write_bytes(data)


def test_what_was_made_anew_for_a_segment_that_is_sealed_is_saved(
    tmp_path: Path, open_log: Any, reopened: Log, fill: Fill, read_batches: Any
) -> None:
    for name in INDEXES:
        damage(tmp_path / "topic-0" / name)
    reopened.roll()
    cold = cold_read(reopened, offset=60)
    cold.load()
    cold.finish()
    fill(reopened, 5)
    check(reopened, read_batches, count=45)


def test_an_index_without_entries_is_saved_when_it_was_made_anew(tmp_path: Path, open_log: Any, fill: Fill) -> None:
    """Of a segment smaller than an index interval: else each reader makes it anew."""
    log = open_log(config=LogConfig())
    fill(log, 5)
    log.roll()
    fill(log, 1)
    log.close()
    damage(tmp_path / "topic-0" / INDEXES[0])
    again = open_log(config=LogConfig())
    cold = cold_read(again, offset=6)
    cold.load()
    cold.finish()
    assert (tmp_path / "topic-0" / INDEXES[0]).read_bytes() == b""


def test_what_is_loaded_for_a_reader_of_a_deleted_log_is_not_saved_into_the_next_of_its_name(
    tmp_path: Path, open_log: Any, reopened: Log, fill: Fill, read_batches: Any
) -> None:
    fill(reopened, 1)
    cold = cold_read(reopened, offset=60)
    reopened.retire()  # its files have other names; what is open is indexed anew from the batches
    another = open_log(config=CONFIG)
    fill(another, 5)
    another.segments.active.seal()
    cold.load()
    cold.finish()
    check(another, read_batches, count=5)


def test_a_copy_made_before_a_segment_was_sealed_does_not_take_its_last_entry_away(
    tmp_path: Path, open_log: Any, fill: Fill, faulty_files: Any, read_batches: Any
) -> None:
    config = LogConfig(segment_bytes=1 << 24, index_interval_bytes=1000)
    log = open_log(config=config)
    fill(log)
    log.close()
    files = faulty_files(tmp_path)
    again = open_log(config=config, files=files)
    fill(again, 12)  # of which the last has no entry yet
    files.room = 0
    again.segments.active.indexes.save_if_possible()  # in vain: what is saved next replaces what is there
    files.room = None
    cold = cold_read(again, offset=60)
    cold.load()
    old = again.segments.active
    again.roll()
    old.release()  # as the cache does
    cold.finish()
    fill(again, 1)
    check(again, read_batches, count=53)


def mislead(path: Path, *, entry: int | None = None) -> None:
    """Entries of an offset index (all but the last, if `entry` is not told) lead into the middle of a batch. The
    positions still rise, so that nothing but what lies there tells."""
    data = bytearray(path.read_bytes())
    for at in range(4, len(data) - 8, 8) if entry is None else (entry * 8 + 4,):
        data[at : at + 4] = (int.from_bytes(data[at : at + 4], "big") + 150).to_bytes(4, "big")
    path.write_bytes(data)


@pytest.fixture
def misled(tmp_path: Path, open_log: Any, fill: Fill) -> Callable[..., Log]:
    def open_(entry: int | None = None) -> Log:
        log: Log = open_log(config=CONFIG)
        fill(log)
        log.close()
        mislead(tmp_path / "topic-0" / INDEXES[0], entry=entry)
        again: Log = open_log(config=CONFIG)
        return again

    return open_


def test_a_search_that_is_led_into_the_middle_of_a_batch_makes_the_index_anew(
    misled: Callable[..., Log], read_batches: Any
) -> None:
    log = misled()
    found = log.offset_for_timestamp(T0 + 60 * 1000)
    assert found is not None
    assert found.offset == 60
    check(log, read_batches, count=40)


def test_a_read_does_not_end_where_a_wrong_index_says(misled: Callable[..., Log], read_batches: Any) -> None:
    log = misled()
    (part,) = log.read(offset=0, limit_bytes=1000)
    data = part.file.read_at(part.position, part.length)
    assert sum(header.size for header, _ in iter_batches(data)) == len(data)
    check(log, read_batches, count=40)


def test_a_truncation_to_where_a_wrong_entry_becomes_the_last_makes_the_index_anew(
    misled: Callable[..., Log], fill: Fill, read_batches: Any
) -> None:
    """Where to cut is known from a read, so that the entry is not looked at before."""
    log = misled(entry=18)  # of the batch that ends at 59
    log.read(offset=57, limit_bytes=300)
    log.truncate_to(60)
    fill(log, 5)
    check(log, read_batches, count=25)


def test_a_time_index_that_ends_in_zeros_does_not_make_a_segment_old(
    tmp_path: Path, open_log: Any, fill: Fill, read_batches: Any
) -> None:
    log = open_log(config=CONFIG)
    fill(log, 20)
    log.roll()
    fill(log, 20)
    log.close()
    path = tmp_path / "topic-0" / INDEXES[1]
    path.write_bytes(path.read_bytes() + bytes(12 * 20))
    again = open_log(config=CONFIG)
    assert not again.apply_retention(T0 + 200_000)
    check(again, read_batches, count=40)
