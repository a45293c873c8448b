"""The log in memory."""

from __future__ import annotations

from tidemark.raft import Entry
from tidemark.raft.log import Log


def log_of(*terms: int, base_index: int = 0, base_term: int = 0) -> Log:
    entries = [Entry(term, index, b"x" * term) for index, term in enumerate(terms, start=base_index + 1)]
    return Log(entries, base_index=base_index, base_term=base_term)


def test_terms_are_known_from_the_base_to_the_end() -> None:
    log = log_of(4, 5, base_index=10, base_term=3)
    assert [log.term_at(index) for index in (9, 10, 11, 12, 13)] == [None, 3, 4, 5, None]


def test_a_later_term_beats_a_longer_log() -> None:
    log = log_of(1, 1, 2)
    assert log.is_up_to_date(last_index=1, last_term=3)
    assert log.is_up_to_date(last_index=3, last_term=2)
    assert not log.is_up_to_date(last_index=2, last_term=2)
    assert not log.is_up_to_date(last_index=99, last_term=1)


def test_a_slice_keeps_to_its_limits_but_is_never_empty() -> None:
    log = log_of(1, 2, 3, 4)
    assert len(log.between(first=1, last=4, bytes_max=3, entries_max=9)) == 2
    assert len(log.between(first=1, last=4, bytes_max=99, entries_max=3)) == 3
    assert len(log.between(first=4, last=4, bytes_max=0, entries_max=9)) == 1
    assert log.between(first=5, last=4, bytes_max=9, entries_max=9) == ()


def test_truncated_entries_are_to_be_saved_anew() -> None:
    log = log_of(1, 1, 1)
    log.truncate_from(2)
    assert (log.last_index, log.persisted_index, log.size_bytes) == (1, 1, 1)
    log.append([Entry(2, 2, b"new")])
    assert [entry.term for entry in log.take_unsaved()] == [2]
    assert log.take_unsaved() == ()


def test_a_save_that_the_log_has_outrun_does_not_count() -> None:
    log = log_of(1)
    log.append([Entry(1, 2, b"old")])
    log.take_unsaved()
    log.truncate_from(2)
    log.append([Entry(2, 2, b"new")])
    log.saved_up_to(index=2, term=1)
    assert log.persisted_index == 1
    log.saved_up_to(index=2, term=2)
    assert log.persisted_index == 2


def test_compaction_keeps_a_few_entries_for_those_who_lag() -> None:
    log = log_of(1, 1, 2, 3, 3)
    log.compact(up_to=4, kept=2)
    assert (log.base_index, log.base_term, log.last_index) == (2, 1, 5)
    assert log.size_bytes == 2 + 3 + 3
    log.compact(up_to=5, kept=0)
    assert (log.base_index, log.base_term, log.last_index, log.last_term) == (5, 3, 5, 3)


def test_a_conflict_names_the_first_index_of_its_term() -> None:
    log = log_of(1, 2, 2, 2, 5)
    assert log.conflict_at(4) == (2, 2)
    assert log.conflict_at(9) == (6, 0)
    assert log.last_index_of_term(2, before=5) == 4
    assert log.last_index_of_term(3, before=5) is None
    assert log.last_index_of_term(5, before=4) is None
