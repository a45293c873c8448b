"""A node's memory on real files: what was saved is loaded, at whatever point a crash came."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.files import REAL_FILES
from tidemark.raft import (
    Configuration,
    Effects,
    Entry,
    FileStorage,
    HardState,
    Journal,
    JournalCorrupt,
    Kind,
    Saved,
    Snapshot,
)

VOTERS = Configuration.of([1, 2, 3])


def entries(*pairs: tuple[int, int]) -> tuple[Entry, ...]:
    return tuple(Entry(term, index, b"%d@%d" % (index, term)) for index, term in pairs)


def snapshot(index: int, term: int) -> Snapshot:
    return Snapshot(index=index, term=term, configuration=VOTERS, data=b"state %d" % index)


def reloaded(directory: Path) -> Saved:
    storage = FileStorage(directory)
    saved = storage.load()
    storage.close()
    return saved


@pytest.fixture
def storage(tmp_path: Path) -> FileStorage:
    return FileStorage(tmp_path)


def test_a_new_directory_holds_nothing(tmp_path: Path) -> None:
    assert reloaded(tmp_path) == Saved()


def test_term_vote_and_entries_are_loaded_as_saved(storage: FileStorage, tmp_path: Path) -> None:
    kinds = (Entry(3, 1, b"", Kind.NO_OP), Entry(3, 2, VOTERS.encode(), Kind.CONFIGURATION), Entry(3, 3, b"data"))
    storage.save(Effects(hard_state=HardState(term=3, vote=2), entries=kinds))
    storage.close()
    assert reloaded(tmp_path) == Saved(hard_state=HardState(term=3, vote=2), entries=kinds)


def test_entries_at_a_known_index_replace_what_follows(storage: FileStorage, tmp_path: Path) -> None:
    storage.save(Effects(hard_state=HardState(term=2), entries=entries((1, 1), (2, 1), (3, 1))))
    storage.save(Effects(entries=entries((2, 2))))
    storage.save(Effects(entries=entries((3, 2), (4, 2))))
    storage.close()
    assert reloaded(tmp_path).entries == entries((1, 1), (2, 2), (3, 2), (4, 2))


def test_a_snapshot_keeps_the_entries_after_it(storage: FileStorage, tmp_path: Path) -> None:
    storage.save(Effects(hard_state=HardState(term=1), entries=entries((1, 1), (2, 1), (3, 1))))
    storage.save(Effects(snapshot=snapshot(2, 1), entries=entries((4, 1))))
    storage.save(Effects(entries=entries((5, 1))))
    storage.close()
    saved = reloaded(tmp_path)
    assert saved.snapshot == snapshot(2, 1)
    assert saved.entries == entries((3, 1), (4, 1), (5, 1))


def test_a_snapshot_may_cover_entries_that_were_never_saved(storage: FileStorage, tmp_path: Path) -> None:
    storage.save(Effects(hard_state=HardState(term=1), entries=entries((1, 1))))
    storage.save(Effects(snapshot=snapshot(3, 1), entries=entries((2, 1), (3, 1), (4, 1))))
    storage.close()
    assert reloaded(tmp_path).entries == entries((4, 1))


def test_a_leaders_snapshot_replaces_the_whole_log(storage: FileStorage, tmp_path: Path) -> None:
    storage.save(Effects(hard_state=HardState(term=5), entries=entries((1, 1), (2, 1), (3, 1))))
    storage.save(Effects(snapshot=snapshot(2, 5), restore=snapshot(2, 5)))
    storage.close()
    saved = reloaded(tmp_path)
    assert (saved.snapshot, saved.entries) == (snapshot(2, 5), ())


def test_a_crash_before_the_replaced_log_is_cut_leaves_no_foreign_entries(storage: FileStorage, tmp_path: Path) -> None:
    storage.save(Effects(hard_state=HardState(term=5), entries=entries((1, 1), (2, 1), (3, 1))))
    before = (tmp_path / "journal").read_bytes()
    storage.save(Effects(snapshot=snapshot(2, 5), restore=snapshot(2, 5)))
    storage.close()
    (tmp_path / "journal").write_bytes(before)
    assert reloaded(tmp_path).entries == ()
    assert reloaded(tmp_path).snapshot == snapshot(2, 5)


def test_a_journal_from_before_the_quorum_is_taken_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([b"a", b"b"], term=1)
    journal.save_snapshot(b"state")
    journal.append([b"c"], term=1)
    journal.close()
    saved = reloaded(tmp_path)
    assert saved.hard_state == HardState(term=1)
    assert saved.snapshot == Snapshot(index=2, term=1, configuration=Configuration(), data=b"state")
    assert saved.entries == (Entry(1, 3, b"c"),)


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 28])
def test_a_damaged_hard_state_is_refused(storage: FileStorage, tmp_path: Path, damage: bytes) -> None:
    storage.save(Effects(hard_state=HardState(term=1, vote=1)))
    storage.close()
    (tmp_path / "hard-state").write_bytes(damage)
    with pytest.raises(JournalCorrupt, match="hard"):
        reloaded(tmp_path)


def test_a_hard_state_older_than_the_log_is_refused(storage: FileStorage, tmp_path: Path) -> None:
    storage.save(Effects(hard_state=HardState(term=7), entries=entries((1, 7))))
    storage.close()
    (tmp_path / "hard-state").unlink()
    storage = FileStorage(tmp_path)
    storage.save(Effects(hard_state=HardState(term=3)))
    storage.close()
    with pytest.raises(JournalCorrupt, match="term 3"):
        reloaded(tmp_path)


def test_a_gap_is_refused_before_it_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(ValueError, match="cannot be entry 1"):
        journal.append_entries(entries((2, 1)))
    assert journal.size_bytes == 0
    journal.close()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    REAL_FILES.replace(str(tmp_path / "name"), b"old", sync=True)
    REAL_FILES.replace(str(tmp_path / "name"), b"new", sync=True)
    assert (tmp_path / "name").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


operations = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("snapshot"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(operations, max_size=15))
def test_files_hold_what_a_list_would_hold(tmp_path: Path, steps: list[tuple[str, int, int]]) -> None:
    """Appends that go back by a few entries, snapshots and restarts in any order, against a model in memory."""
    directory = tmp_path / "model"
    shutil.rmtree(directory, ignore_errors=True)
    storage, log, base, base_term, term = FileStorage(directory), [], 0, 0, 0  # type: ignore[var-annotated]
    for what, amount, count in steps:
        if what == "append":
            term += 1
            first = max(base + 1, base + len(log) + 1 - amount)
            new = entries(*((index, term) for index in range(first, first + count)))
            log[first - base - 1 :] = new
            storage.save(Effects(hard_state=HardState(term=term), entries=new))
        elif what == "snapshot" and (done := min(amount, len(log))):
            base, base_term = log[done - 1].index, log[done - 1].term
            del log[:done]
            storage.save(Effects(snapshot=snapshot(base, base_term)))
        else:
            storage.close()
            storage = FileStorage(directory)
    storage.close()
    saved = reloaded(directory)
    assert saved.entries == tuple(log)
    assert saved.hard_state.term == term
    assert saved.snapshot == (snapshot(base, base_term) if base else None)
