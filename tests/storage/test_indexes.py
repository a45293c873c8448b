"""A save of indexes that another thread writes: whatever happens to them meanwhile, the files say what memory does."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from tidemark.storage.files import Files
from tidemark.storage.indexes import Indexes

T0 = 1_700_000_000_000


class Disk(Files):
    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None

    def write_all(self, fd, data) -> None:
        if self.room is not None and len(data) > self.room:
            super().write_all(fd, memoryview(data)[: self.room])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_all(fd, data)


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def indexes(disk, tmp_path):
    indexes = Indexes(disk, stem=str(tmp_path / "0"), base_offset=0)
    indexes.begin()
    return indexes


def add(indexes, count=1):
    for _ in range(count):
        entries = len(indexes.offsets)
        indexes.offsets.append(offset=10 * entries + 9, position=1000 * entries + 100)
        indexes.times.append_if_later(timestamp=T0 + entries, offset=10 * entries + 9)


def check(indexes, tmp_path):
    """The files hold what memory does, and nothing is counted as saved that is not."""
    assert (tmp_path / "0.index").read_bytes() == indexes.offsets.encode()
    assert (tmp_path / "0.timeindex").read_bytes() == indexes.times.encode()
    assert indexes.unsaved_entries == 0


def begin(indexes, count=3):
    add(indexes, count)
    save = indexes.begin_save()
    assert save is not None
    return save


def test_what_is_added_meanwhile_comes_with_the_next_save(indexes, tmp_path):
    save = begin(indexes)
    add(indexes, 2)
    save()
    indexes.finish_save(save)
    assert indexes.unsaved_entries == 2
    indexes.save()
    check(indexes, tmp_path)
    add(indexes)
    indexes.save()
    check(indexes, tmp_path)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_save_that_is_asked_for_meanwhile_is_made_when_that_is_finished(indexes, tmp_path, is_written):
    save = begin(indexes)
    add(indexes)
    indexes.save()
    assert not (tmp_path / "0.index").exists(), "two threads would mix what they write"
    if is_written:
        save()
    indexes.finish_save(save)
    check(indexes, tmp_path)


def test_only_one_is_under_way(indexes):
    begin(indexes)
    assert indexes.begin_save() is None


@pytest.mark.parametrize("room", [0, 3, 8, 24, 30, 40])
def test_one_that_fails_is_replaced_by_the_next(indexes, disk, tmp_path, room):
    indexes.save()
    save = begin(indexes, 3)
    disk.room = room
    try:
        save()
    except OSError:
        assert not save.is_done
    indexes.finish_save(save)
    disk.room = None
    add(indexes)
    indexes.save()
    check(indexes, tmp_path)


def test_one_that_fails_and_was_not_needed_raises_nothing(indexes, disk):
    save = begin(indexes)
    disk.room = 1
    save.if_possible()
    indexes.finish_save(save)
    assert not save.is_done
    assert indexes.unsaved_entries == 3


@pytest.mark.parametrize("is_written", [True, False])
def test_entries_that_are_dropped_meanwhile_are_not_in_the_files_afterwards(indexes, tmp_path, is_written):
    save = begin(indexes, 6)
    if is_written:
        save()
    indexes.keep_before(offset=25, position=2100)
    if not is_written:
        save()
    indexes.finish_save(save)
    indexes.save()
    assert len(indexes.offsets) == 2
    check(indexes, tmp_path)


def test_indexes_that_are_begun_anew_meanwhile_replace_what_was_written(indexes, tmp_path):
    save = begin(indexes, 6)
    indexes.begin()
    save()
    indexes.finish_save(save)
    add(indexes, 2)
    indexes.save()
    check(indexes, tmp_path)


def test_what_is_disowned_meanwhile_is_not_saved_again(indexes, tmp_path):
    save = begin(indexes)
    save()
    indexes.save()  # due, but not yet
    indexes.disown_files()
    before = (tmp_path / "0.index").read_bytes()
    add(indexes)
    indexes.finish_save(save)
    assert indexes.begin_save() is None
    assert (tmp_path / "0.index").read_bytes() == before


def test_another_name_meanwhile_counts_for_the_next_save(indexes, tmp_path):
    save = begin(indexes)
    save()
    for suffix in (".index", ".timeindex"):
        (tmp_path / f"0{suffix}").rename(tmp_path / f"1{suffix}")
    indexes.renamed_to(str(tmp_path / "1"))
    indexes.finish_save(save)
    add(indexes)
    indexes.save()
    assert (tmp_path / "1.index").read_bytes() == indexes.offsets.encode()
    assert not (tmp_path / "0.index").exists()


def test_a_copy_made_meanwhile_reads_what_memory_holds(indexes, tmp_path):
    indexes.save()
    save = begin(indexes, 5)
    copy = indexes.copy()
    save()
    indexes.finish_save(save)
    assert copy.begin_save() is None, "a copy saves nothing"
    assert copy.offsets.encode() == indexes.offsets.encode()
    indexes.adopt_beginning(copy)
    add(indexes)
    indexes.save()
    check(indexes, tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_the_files_are_what_memory_is(disk, tmp_path, seed):
    random, path = Random(seed), Path(tmp_path)
    indexes = Indexes(disk, stem=str(path / "0"), base_offset=0)
    indexes.begin()
    indexes.save()
    if random.random() < 0.5:  # only the ends are in memory
        add(indexes, 20)
        indexes.save()
        indexes = Indexes(disk, stem=str(path / "0"), base_offset=0)
        assert indexes.load_ends(log_size=1 << 20)
    save = None
    for _ in range(100):
        action = random.random()
        if action < 0.4:
            add(indexes, random.randint(1, 4))
        elif action < 0.6 and save is None:
            save = indexes.begin_save()
        elif action < 0.7:
            disk.room = random.choice([None, None, 0, 5, 30])
        elif action < 0.9 and save is not None:
            if random.random() < 0.8:
                save.if_possible()
            indexes.finish_save(save)
            save = None
        elif action < 0.95:
            indexes.save_if_possible()
    disk.room = None
    if save is not None:
        save()
        indexes.finish_save(save)
    indexes.save()
    read = Indexes(disk, stem=str(path / "0"), base_offset=0)
    offsets, times = read.load_offsets(log_size=1 << 20), read.load_times()
    assert offsets is not None
    assert times is not None
    assert indexes.offsets is not None
    assert indexes.times is not None
    assert (offsets.last(), times.last()) == (indexes.offsets.last(), indexes.times.last())
    assert len((path / "0.index").read_bytes()) == 8 * len(indexes.offsets)
