"""Whose transactions were ended since: known for the last thousand producers, and assumed of those before."""

from __future__ import annotations

from tidemark.broker.replication.ended_transactions import PRODUCERS_MAX, EndedTransactions


def test_only_what_was_ended_since_counts():
    ended = EndedTransactions()
    ended.add(1)
    before = ended.count
    ended.add(2)
    assert ended.has_since(2, before)
    assert not ended.has_since(1, before)
    assert not ended.has_since(3, before)


def test_what_is_forgotten_may_have_been_ended():
    ended = EndedTransactions()
    ended.add(0)
    middle = ended.count
    for producer_id in range(1, PRODUCERS_MAX + 2):
        ended.add(producer_id)
    assert ended.has_since(0, 0)
    assert ended.has_since(1, middle)
    assert not ended.has_since(-7, ended.count)
    assert len(ended._last) == PRODUCERS_MAX
