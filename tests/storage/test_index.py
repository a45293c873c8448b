from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.storage.index import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex


def offset_index(*entries: tuple[int, int], base: int = 1000) -> OffsetIndex:
    index = OffsetIndex(base)
    for offset, position in entries:
        index.append(offset=offset, position=position)
    return index


def test_an_empty_offset_index_finds_nothing():
    index = OffsetIndex(5)
    assert index.floor(7) is None
    assert index.last() is None
    assert index.last_up_to(100) is None


def test_offset_index_finds_the_last_entry_at_or_before_an_offset():
    index = offset_index((1010, 50), (1020, 90))
    assert index.floor(1009) is None
    assert index.floor(1010) == (1010, 50)
    assert index.floor(1019) == (1010, 50)
    assert index.floor(1 << 60) == (1020, 90)


def test_offset_index_finds_batch_starts_by_position():
    index = offset_index((1010, 50), (1020, 90))
    assert index.last_up_to(49) is None
    assert index.last_up_to(89) == (1010, 50)
    assert index.last_up_to(90) == (1020, 90)


def test_offset_index_drops_entries_past_an_offset_or_position():
    index = offset_index((1010, 50), (1020, 90), (1030, 130))
    index.keep_before(offset=1030, position=1 << 30)
    assert index.last() == (1020, 90)
    index.keep_before(offset=1 << 60, position=90)
    assert index.last() == (1010, 50)


def test_offset_index_has_kafkas_layout():
    assert offset_index((1010, 50), (1020, 90)).encode() == struct.pack(">iiii", 10, 50, 20, 90)


def test_offset_index_reaches_to_the_end_of_int32():
    index = offset_index((1000 + MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET))
    assert index.floor(1000 + MAX_RELATIVE_OFFSET) == (1000 + MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack(">iiii", 10, 50, 10, 90),
        struct.pack(">iiii", 10, 90, 20, 50),
        struct.pack(">iiii", 10, 50, 0, 0),
        struct.pack(">ii", -1, 50),
        struct.pack(">ii", 10, -50),
        struct.pack(">ii", 10, 5000),
    ],
    ids=["half an entry", "offset repeats", "position falls", "zero padding", "before base", "before file", "past log"],
)
def test_a_damaged_offset_index_is_not_believed(data):
    assert OffsetIndex.decode(data, base_offset=1000, log_size=1000) is None


@given(st.dictionaries(st.integers(0, MAX_RELATIVE_OFFSET), st.integers(0, 1 << 20), max_size=50), st.integers(0, 50))
def test_offset_index_survives_a_round_trip(raw, first):
    entries = list(zip(sorted(raw), sorted(set(raw.values())), strict=False))
    index = offset_index(*((offset, position) for offset, position in entries), base=0)
    again = OffsetIndex.decode(index.encode(), base_offset=0, log_size=1 << 21)
    assert again is not None
    assert again.encode() == index.encode()
    assert index.encode(first=min(first, len(index))) == index.encode()[8 * min(first, len(index)) :]


def time_index(*entries: tuple[int, int], base: int = 1000) -> TimeIndex:
    index = TimeIndex(base)
    for timestamp, offset in entries:
        index.append_if_later(timestamp=timestamp, offset=offset)
    return index


def test_time_index_takes_only_later_times():
    index = time_index((50, 1001), (50, 1002), (40, 1003), (60, 1004))
    assert len(index) == 2
    assert index.last() == (60, 1004)


def test_time_index_never_takes_a_batch_without_a_timestamp():
    assert len(time_index((-1, 1001))) == 0


def test_time_index_finds_where_to_begin_looking():
    index = time_index((50, 1010), (60, 1020))
    assert index.floor(49) == 1000
    assert index.floor(50) == 1010
    assert index.floor(1 << 60) == 1020


def test_time_index_has_kafkas_layout():
    assert time_index((50, 1010)).encode() == struct.pack(">qi", 50, 10)


def test_time_index_drops_entries_past_an_offset():
    index = time_index((50, 1010), (60, 1020))
    index.keep_before(offset=1020)
    assert index.last() == (50, 1010)


@pytest.mark.parametrize(
    "data",
    [b"\0" * 11, struct.pack(">qiqi", 50, 10, 50, 20), struct.pack(">qiqi", 50, 10, 60, 10), b"\0" * 24, b"\xff" * 12],
)
def test_a_damaged_time_index_is_not_believed(data):
    assert TimeIndex.decode(data, base_offset=1000) is None


def test_time_index_survives_a_round_trip():
    index = time_index((50, 1010), (60, 1020))
    again = TimeIndex.decode(index.encode(), base_offset=1000)
    assert again is not None
    assert again.last() == (60, 1020)
    assert again.encode() == index.encode()


def test_entries_never_go_back():
    index = offset_index((1010, 100))
    with pytest.raises(AssertionError, match="offset 1010 after"):
        index.append(offset=1010, position=200)
