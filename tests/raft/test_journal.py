"""The durable log of entries: what was appended is replayed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark import portable
from tidemark.raft import Journal, JournalCorrupt


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
    whole = journal.size_bytes
    journal.append([b"torn by a crash"], term=1)
    journal.close()
    data = (tmp_path / "journal").read_bytes()
    for end in range(whole, len(data)):
        (tmp_path / "journal").write_bytes(data[:end])
        assert replayed(tmp_path) == [(1, 1, b"kept")]
        assert (tmp_path / "journal").stat().st_size == whole


def test_appending_goes_on_after_a_torn_tail(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"kept", b"torn"], term=1)
    journal.close()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes()[:-1])
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

    monkeypatch.setattr(portable, "sync_data", full)
    with pytest.raises(OSError, match="No space left"):
        journal.append([b"lost"], term=1)
    monkeypatch.undo()
    assert journal.append([b"next"], term=1) == 2
    journal.close()
    assert replayed(tmp_path) == [(1, 1, b"kept"), (1, 2, b"next")]
