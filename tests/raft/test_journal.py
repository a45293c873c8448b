"""The durable log of entries: what was appended is replayed, and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tidemark.files import REAL_FILES
from tidemark.raft import (
    Configuration,
    Effects,
    Entry,
    FileStorage,
    HardState,
    Journal,
    JournalCorrupt,
    Snapshot,
)
from tidemark.raft.journal import _frame


def replayed(path: Path) -> list[tuple[int, int, bytes]]:
    journal = Journal(path)
    entries = [(entry.term, entry.index, entry.payload) for entry in journal.replay()]
    journal.close()
    return entries


def test_entries_are_replayed_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.append([b"one", b"two"], term=1) == 2
    assert journal.append([b"three"], term=2) == 3
    journal.close()
    assert replayed(tmp_path) == [(1, 1, b"one"), (1, 2, b"two"), (2, 3, b"three")]


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)
    whole, synced = journal.size_bytes, (tmp_path / "journal-synced").read_bytes()
    journal.append([b"torn by a crash"], term=1)
    journal.close()
    data = (tmp_path / "journal").read_bytes()
    for end in range(whole, len(data)):
        (tmp_path / "journal").write_bytes(data[:end])
        (tmp_path / "journal-synced").write_bytes(synced)
        assert replayed(tmp_path) == [(1, 1, b"kept")]
        assert (tmp_path / "journal").stat().st_size == whole


def test_appending_goes_on_after_a_torn_tail(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)
    synced = (tmp_path / "journal-synced").read_bytes()
    journal.append([b"torn"], term=1)
    journal.close()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes()[:-1])
    (tmp_path / "journal-synced").write_bytes(synced)
    journal = Journal(tmp_path)
    assert journal.append([b"next"], term=1) == 2
    journal.close()
    assert replayed(tmp_path) == [(1, 1, b"kept"), (1, 2, b"next")]


@pytest.mark.parametrize("position", [0, 5, 10, 20, 26])
def test_damage_before_the_last_entry_is_refused(tmp_path: Path, position: int) -> None:
    journal = Journal(tmp_path)
    journal.append([b"first entry"], term=1)
    journal.append([b"second entry"], term=1)
    journal.close()
    data = bytearray((tmp_path / "journal").read_bytes())
    data[position] ^= 0x40
    (tmp_path / "journal").write_bytes(data)
    with pytest.raises(JournalCorrupt, match="damaged at byte 0"):
        Journal(tmp_path)


def test_a_snapshot_replaces_the_entries_before_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"a", b"b"], term=3)
    journal.save_snapshot(b"state of a and b")
    journal.append([b"c"], term=3)
    journal.close()
    journal = Journal(tmp_path)
    assert (journal.snapshot, journal.snapshot_index, journal.snapshot_term) == (b"state of a and b", 2, 3)
    assert [entry.payload for entry in journal.replay()] == [b"c"]
    journal.close()


def test_a_crash_between_snapshot_and_truncation_replays_nothing_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"a", b"b"], term=1)
    before = (tmp_path / "journal").read_bytes()
    journal.save_snapshot(b"state")
    journal.close()
    (tmp_path / "journal").write_bytes(before)
    assert replayed(tmp_path) == []


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"a"], term=1)
    journal.save_snapshot(b"state")
    journal.close()
    data = bytearray((tmp_path / "snapshot").read_bytes())
    data[-1] ^= 1
    (tmp_path / "snapshot").write_bytes(data)
    with pytest.raises(JournalCorrupt, match="checksum"):
        Journal(tmp_path)


def test_a_failed_append_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(REAL_FILES, "fdatasync", full)
    with pytest.raises(OSError, match="No space left"):
        journal.append([b"lost"], term=1)
    monkeypatch.undo()
    assert journal.append([b"next"], term=1) == 2
    journal.close()
    assert replayed(tmp_path) == [(1, 1, b"kept"), (1, 2, b"next")]


class FillingDisk:
    """Takes a part of what is written, and then nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._write = os.write
        monkeypatch.setattr(REAL_FILES, "write", self.write)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self._room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(fd, data[: self._room_bytes])
        self._room_bytes -= written
        return written


def test_a_disk_that_fills_up_in_the_middle_of_a_write_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)
    with monkeypatch.context() as patch:
        FillingDisk(patch, room_bytes=10)
        with pytest.raises(OSError, match="No space left") as full:
            journal.append([b"does not fit"], term=1)
    assert full.value.errno == errno.ENOSPC
    assert journal.append([b"next"], term=1) == 2
    journal.close()
    assert replayed(tmp_path) == [(1, 1, b"kept"), (1, 2, b"next")]


def lose_first_page(tmp_path: Path, *, position: int) -> None:
    path = tmp_path / "journal"
    data = bytearray(path.read_bytes())
    data[position : position + 4096] = bytes(4096)
    path.write_bytes(data)


def test_an_early_page_of_an_unsynced_append_may_be_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)
    synced, synced_bytes = (tmp_path / "journal-synced").read_bytes(), journal.size_bytes
    journal.append([bytes([number]) * 3000 for number in range(1, 9)], term=1)
    journal.close()
    (tmp_path / "journal-synced").write_bytes(synced)  # the power went before the second sync returned
    lose_first_page(tmp_path, position=synced_bytes)
    assert replayed(tmp_path) == [(1, 1, b"kept")]
    journal = Journal(tmp_path)
    assert journal.append([b"next"], term=1) == 2
    journal.close()
    assert replayed(tmp_path) == [(1, 1, b"kept"), (1, 2, b"next")]


def test_a_page_that_is_lost_from_a_synced_append_is_damage(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)
    synced_bytes = journal.size_bytes
    journal.append([bytes([number]) * 3000 for number in range(1, 9)], term=1)
    journal.close()
    lose_first_page(tmp_path, position=synced_bytes)
    with pytest.raises(JournalCorrupt, match=f"damaged at byte {synced_bytes}"):
        Journal(tmp_path)


@pytest.mark.parametrize("lost", ["the last bit", "the last byte", "the last entry", "everything"])
def test_a_synced_entry_that_is_missing_at_the_end_is_damage(tmp_path: Path, lost: str) -> None:
    """A voter that forgets what it acknowledged could elect a leader without it."""
    journal = Journal(tmp_path)
    journal.append([b"first"], term=1)
    first = journal.size_bytes
    journal.append([b"second"], term=1)
    journal.close()
    path = tmp_path / "journal"
    data = path.read_bytes()
    flipped = data[:-1] + bytes((data[-1] ^ 1,))
    path.write_bytes(
        {"the last bit": flipped, "the last byte": data[:-1], "the last entry": data[:first], "everything": b""}[lost]
    )
    with pytest.raises(JournalCorrupt, match="synced"):
        Journal(tmp_path)


def test_after_entries_were_replaced_the_new_ones_may_be_torn(tmp_path: Path) -> None:
    """The sync point is lowered with the log: it must not claim that entries were synced that were cut off."""
    journal = Journal(tmp_path)
    journal.append([b"kept", b"replaced", b"replaced"], term=1)
    journal.truncate_from(2)
    synced, synced_bytes = (tmp_path / "journal-synced").read_bytes(), journal.size_bytes
    journal.append([bytes([number]) * 3000 for number in range(1, 9)], term=2)
    journal.close()
    (tmp_path / "journal-synced").write_bytes(synced)
    lose_first_page(tmp_path, position=synced_bytes)
    assert replayed(tmp_path) == [(1, 1, b"kept")]


class PowerCuts:
    """Watches what is synced: `left` is all that a loss of power may leave in the file of the sync point by now."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = directory / "journal-synced"
        self.left: list[bytes] = [b""]
        self.was_directory_synced = False
        sync_data, sync_all = REAL_FILES.fdatasync, REAL_FILES.fsync
        monkeypatch.setattr(REAL_FILES, "fdatasync", partial(self._data, sync_data))
        monkeypatch.setattr(REAL_FILES, "fsync", partial(self._all, sync_all))

    def _data(self, sync: Callable[[int], None], fd: int) -> None:
        sync(fd)
        if os.fstat(fd).st_ino == self._path.stat().st_ino:
            self.left = [self._path.read_bytes()]

    def _all(self, sync: Callable[[int], None], fd: int) -> None:
        sync(fd)
        self.was_directory_synced |= stat.S_ISDIR(os.fstat(fd).st_mode) and self._path.exists()

    def note(self) -> None:
        self.left.append(self._path.read_bytes())


def test_whatever_a_loss_of_power_leaves_of_the_sync_point_all_that_was_synced_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "journal"
    directory.mkdir()
    power = PowerCuts(directory, monkeypatch)
    journal = Journal(directory)
    assert power.was_directory_synced
    steps: list[Callable[[], object]] = [
        lambda: journal.append([b"one", b"two"], term=1),
        lambda: journal.append([b"three"], term=1),
        lambda: journal.truncate_from(2),
        lambda: journal.append([b"another two", b"another three"], term=2),
        lambda: journal.replace_before(b"state", index=2, term=2, configuration=b""),
        lambda: journal.append([b"four"], term=2),
    ]
    for number, step in enumerate([lambda: None, *steps]):
        step()
        power.note()
        synced, data = journal.last_index, (directory / "journal").read_bytes()
        for tried, left in enumerate(power.left):
            cut = shutil.copytree(directory, tmp_path / f"cut-{number}-{tried}")
            (cut / "journal-synced").write_bytes(left)
            # The next append of several pages was under way, and only its last pages have reached the disk.
            entries = [Entry(9, synced + 1 + each, bytes([each]) * 3000) for each in range(4)]
            (cut / "journal").write_bytes(data + bytes(4096) + b"".join(map(_frame, entries))[4096:])
            reopened = Journal(cut)
            assert reopened.last_index == synced
            reopened.close()
    journal.close()


def test_entries_that_a_dead_process_had_not_synced_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept"], term=1)
    synced = (tmp_path / "journal-synced").read_bytes()
    journal.append([b"written"], term=1)
    journal.close()
    (tmp_path / "journal-synced").write_bytes(synced)
    calls: list[int] = []
    monkeypatch.setattr(REAL_FILES, "fdatasync", calls.append)
    assert len(replayed(tmp_path)) == 2
    assert calls
    calls.clear()
    assert len(replayed(tmp_path)) == 2
    assert not calls


def test_a_disk_that_is_full_while_a_snapshot_is_saved_costs_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    entries = tuple(Entry(1, index, b"%d" % index) for index in range(1, 6))
    storage.save(Effects(hard_state=HardState(term=1), entries=entries))
    snapshot = Snapshot(index=3, term=1, configuration=Configuration.of((1,)), data=b"three")
    saves = Effects(snapshot=snapshot, entries=(Entry(1, 6, b"6"),))
    for room in (0, 1, 2):  # the snapshot does not fit; the rest of the journal does not; the new entry does not
        with monkeypatch.context() as patch:
            fill_after(patch, writes=room)
            with pytest.raises(OSError, match="No space left"):
                storage.save(saves)
    storage.save(saves)
    storage.close()
    storage = FileStorage(tmp_path)
    saved = storage.load()
    storage.close()
    assert saved.snapshot == snapshot
    assert [entry.payload for entry in saved.entries] == [b"4", b"5", b"6"]


def test_a_snapshot_that_lacks_a_descriptor_for_the_journal_can_be_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path)
    entries = tuple(Entry(1, index, b"%d" % index) for index in range(1, 6))
    storage.save(Effects(hard_state=HardState(term=1), entries=entries))
    snapshot = Snapshot(index=3, term=1, configuration=Configuration.of((1,)), data=b"three")

    def no_descriptor(_journal: Journal) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_open", no_descriptor)
        with pytest.raises(OSError, match="Too many"):
            storage.save(Effects(snapshot=snapshot))
    storage.save(Effects(snapshot=snapshot, entries=(Entry(1, 6, b"6"),)))
    storage.close()
    storage = FileStorage(tmp_path)
    saved = storage.load()
    storage.close()
    assert [entry.payload for entry in saved.entries] == [b"4", b"5", b"6"]


def fill_after(monkeypatch: pytest.MonkeyPatch, *, writes: int) -> None:
    """The disk takes so many files and appends more."""
    left = writes
    sync_all, sync_data = REAL_FILES.fsync, REAL_FILES.fdatasync

    def use_up(sync: Callable[[int], None], fd: int) -> None:
        nonlocal left
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            if not left:
                raise OSError(errno.ENOSPC, "No space left on device")
            left -= 1
        sync(fd)

    monkeypatch.setattr(REAL_FILES, "fsync", partial(use_up, sync_all))
    monkeypatch.setattr(REAL_FILES, "fdatasync", partial(use_up, sync_data))
