import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.pipeline.source.limiting import Limits, limited
from tidemark.pipeline.source.planning import Range, split

SIZES = st.lists(st.integers(1, 500), min_size=1, max_size=8)


def ranges(sizes: list[int]) -> list[Range]:
    return [Range(topic="t", partition=each, first=10, end=10 + size) for each, size in enumerate(sizes)]


@settings(deadline=None)
@given(SIZES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 90))
def test_pieces_make_up_the_ranges(sizes: list[int], partitions_min: int | None, records_max: int | None) -> None:
    pieces = split(ranges(sizes), partitions_min=partitions_min, records_max=records_max)
    for whole in ranges(sizes):
        own = [each for each in pieces if each.partition == whole.partition]
        assert [own[0].first, *(each.end for each in own)] == [*(each.first for each in own), whole.end]
        assert all(each.size > 0 for each in own)
        assert records_max is None or all(each.size <= records_max for each in own)


def test_a_large_partition_gets_more_pieces() -> None:
    pieces = split(ranges([9000, 1000]), partitions_min=10, records_max=None)
    assert [sum(each.partition == number for each in pieces) for number in range(2)] == [9, 1]


def test_nothing_to_read_has_no_pieces() -> None:
    assert split([], partitions_min=4, records_max=None) == []


A, B = ("t", 0), ("t", 1)


def test_without_limits_a_batch_takes_everything() -> None:
    assert limited({A: 1, B: 2}, {A: 5, B: 2}, Limits(), waited_long=False) == {A: 5, B: 2}


def test_a_limit_is_shared_by_what_waits() -> None:
    end = limited({A: 0, B: 0}, {A: 900, B: 100}, Limits(at_most=100), waited_long=False)
    assert end == {A: 90, B: 10}
    assert limited({A: 0, B: 0}, {A: 900, B: 1}, Limits(at_most=10), waited_long=False)[B] == 1


def test_too_little_is_waited_for_but_not_forever() -> None:
    limits = Limits(at_least=10)
    assert limited({A: 0}, {A: 5}, limits, waited_long=False) == {A: 0}
    assert limited({A: 0}, {A: 5}, limits, waited_long=True) == {A: 5}
    assert limited({A: 0}, {A: 15}, limits, waited_long=False) == {A: 15}


@pytest.mark.parametrize("limits", [Limits(), Limits(at_most=3)])
def test_a_log_that_was_cut_off_does_not_take_a_stream_back(limits: Limits) -> None:
    assert limited({A: 9}, {A: 4}, limits, waited_long=False) == {A: 9}
