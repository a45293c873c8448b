"""Offsets in transactions: what was written last wins, whichever transaction ends last."""

from __future__ import annotations

from tidemark.broker.groups.committed_offsets import CommittedOffsets
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue

KEY = OffsetCommitKey(group="g", topic="t", partition=0)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset)


def committed(offsets: CommittedOffsets) -> int | None:
    found = offsets.of_topic("g", "t").get(0)
    return None if found is None else found.offset


def test_a_pending_offset_counts_with_the_commit_and_not_with_an_abort() -> None:
    offsets = CommittedOffsets()
    offsets.replay_pending(1, KEY, value(5))
    assert committed(offsets) is None
    assert offsets.is_pending("g", "t", 0)
    offsets.end_transaction(1, commit=True)
    assert (committed(offsets), offsets.has_pending("g")) == (5, False)
    offsets.replay_pending(1, KEY, value(9))
    offsets.end_transaction(1, commit=False)
    assert (committed(offsets), offsets.has_pending("g")) == (5, False)


def test_a_later_plain_commit_outlives_a_transaction_that_ends_after_it() -> None:
    offsets = CommittedOffsets()
    offsets.replay_pending(1, KEY, value(5))
    offsets.replay(KEY, value(7))
    assert offsets.is_pending("g", "t", 0)
    offsets.end_transaction(1, commit=True)
    assert committed(offsets) == 7


def test_of_two_transactions_the_one_that_wrote_last_wins() -> None:
    for first, second in ((1, 2), (2, 1)):
        offsets = CommittedOffsets()
        offsets.replay_pending(1, KEY, value(5))
        offsets.replay_pending(2, KEY, value(6))
        offsets.end_transaction(first, commit=True)
        assert offsets.is_pending("g", "t", 0)
        offsets.end_transaction(second, commit=True)
        assert committed(offsets) == 6


def test_a_deletion_forgets_what_is_pending() -> None:
    offsets = CommittedOffsets()
    offsets.replay_pending(1, KEY, value(5))
    [tombstone] = offsets.pending_deletion("g")
    offsets.replay(tombstone.key, None)
    assert not offsets.has_pending("g")
    offsets.end_transaction(1, commit=True)
    assert committed(offsets) is None


def test_the_end_of_a_transaction_that_committed_no_offsets_changes_nothing() -> None:
    offsets = CommittedOffsets()
    offsets.replay(KEY, value(3))
    offsets.end_transaction(9, commit=True)
    assert committed(offsets) == 3
