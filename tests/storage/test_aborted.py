from __future__ import annotations

import pytest

from tidemark.storage.aborted import AbortedIndex, AbortedTransaction
from tidemark.storage.files import Files


@pytest.fixture
def index(tmp_path):
    index = AbortedIndex(Files(), str(tmp_path / "00000000000000000000.txnindex"))
    for first, last, stable in [(0, 10, 5), (5, 20, 15), (30, 40, 41)]:
        index.append(AbortedTransaction(7, first, last, stable))
    return index


def found(index, first, end):
    entries, complete = index.collect(first=first, end=end)
    return [entry.first_offset for entry in entries], complete


def test_transactions_that_overlap_the_range_are_found(index):
    assert found(index, 0, 4) == ([0], True)
    assert found(index, 11, 31) == ([5, 30], True)
    assert found(index, 21, 29) == ([], True)
    assert found(index, 0, 100) == ([0, 5, 30], False)


def test_a_missing_file_holds_nothing(tmp_path):
    assert AbortedIndex(Files(), str(tmp_path / "none")).collect(first=0, end=9) == ([], False)


def test_truncation_drops_transactions_whose_marker_is_gone(index):
    index.keep_before(20)
    assert [entry.last_offset for entry in index.entries()] == [10]


def test_a_torn_last_entry_is_left_out(index, tmp_path):
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(path.read_bytes()[:-1])
    assert [entry.last_offset for entry in index.entries()] == [10, 20]
