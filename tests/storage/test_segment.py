from __future__ import annotations

import os

import pytest

from tidemark.protocol.records import read_header
from tidemark.storage.cache import SegmentCache
from tidemark.storage.deletion import rename_for_deletion
from tidemark.storage.files import Files
from tidemark.storage.segment import Segment
from tidemark.storage.segments import Segments

T0 = 1_700_000_000_000


def add(segment, batch):
    header = read_header(batch)
    position = segment.write(batch, len(batch))
    segment.note_batch(
        position=position,
        size=len(batch),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        timestamp=header.max_timestamp,
    )
    return position


@pytest.fixture
def segment(tmp_path, make_batch):
    """Forty batches of three records from offset 100 on, indexed every 300 bytes or so."""
    segment = Segment.create(Files(), str(tmp_path), 100, created_ms=T0)
    segment.index_interval_bytes = 300
    for number in range(40):
        add(segment, make_batch(3, size=30, base_offset=100 + 3 * number, timestamp=T0 + number))
    return segment


def test_a_new_segment_has_a_file_and_with_its_end_an_index_of_each_kind(tmp_path, make_batch):
    segment = Segment.create(Files(), str(tmp_path), 7, created_ms=T0)
    assert [path.name for path in tmp_path.iterdir()] == [f"{7:020d}.log"]
    add(segment, make_batch(3, size=30, base_offset=7, timestamp=T0))
    segment.seal()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{7:020d}.index",
        f"{7:020d}.log",
        f"{7:020d}.timeindex",
    ]


def test_every_offset_is_located_with_and_without_memory(segment):
    size = segment.size // 40
    expected = {offset: (offset - 100) // 3 * size for offset in range(100, 220)}
    assert {offset: segment.locate(offset) for offset in expected} == expected
    segment.seal()
    segment.release()
    assert {offset: segment.locate(offset) for offset in expected} == expected
    assert segment.locate(220) == segment.size
    assert segment.locate(5) == 0


def test_index_entries_name_the_last_offset_and_the_start_of_a_batch(segment):
    size = segment.size // 40
    offset, position = segment.offset_index().last()
    assert position % size == 0
    assert offset == 102 + 3 * (position // size)


def test_sealing_records_the_largest_timestamp(segment, tmp_path):
    segment.seal()
    again = Segment(Files(), str(tmp_path), 100, size=segment.size, created_ms=T0)
    assert again.largest_timestamp() == T0 + 39 + 2


def test_a_closed_segments_tail_is_read_again(segment, tmp_path):
    segment.seal()
    again = Segment(Files(), str(tmp_path), 100, size=segment.size, created_ms=T0)
    assert again.load_tail() == 220
    assert again.first_timestamp == T0 + 2


def test_truncation_cuts_log_and_indexes(segment, tmp_path):
    position = segment.locate(160)
    segment.truncate(offset=160, position=position)
    assert os.path.getsize(tmp_path / f"{100:020d}.log") == position == segment.size
    assert segment.offset_index().last()[0] < 160
    assert segment.largest_timestamp() == T0 + 19 + 2
    assert segment.locate(160) == segment.size


def test_what_a_reader_opened_before_a_truncation_is_not_taken_over_after_it(segment, make_batch):
    """The segment may be as long again by then, and have batches that begin elsewhere."""
    size, copy = segment.size, segment.copy()
    copy.open()
    segment.truncate(offset=100, position=0)
    each = len(make_batch(1, size=30))
    for number in range(size // each - 2):
        add(segment, make_batch(1, size=30, base_offset=100 + number))
    left = size - segment.size
    last = 100 + segment.size // each
    whole = next(batch for length in range(left) if len(batch := make_batch(1, size=length, base_offset=last)) == left)
    add(segment, whole)
    assert segment.size == size
    segment.indexes.save()
    segment.indexes.forget()
    segment.adopt(copy)
    assert segment.offset_index().last()[0] <= last
    assert segment.locate(last) == size - left


def test_a_cut_never_exceeds_the_limit_and_is_remembered(segment):
    for limit in range(400, 3000, 50):
        end = segment.cut(start=0, limit=limit)
        assert end <= limit
        assert segment.memo[segment.base_offset_at(end)] == end


def test_a_walk_ends_at_the_last_boundary_within_the_limit(segment):
    size = segment.size // 40
    assert segment.walk(start=0, limit=size - 1) == 0
    assert segment.walk(start=size, limit=3 * size + 5) == 4 * size


def test_a_released_segment_keeps_nothing_open(segment):
    file = segment.open_file()
    descriptor = file.fileno()
    segment.seal()
    segment.release()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_in_use_survives_release_and_removal(segment):
    file = segment.open_file()
    segment.release()
    for path in rename_for_deletion(segment):
        os.unlink(path)
    assert len(os.pread(file.fileno(), 61, 0)) == 61


def test_the_cache_releases_the_segment_not_read_for_longest(tmp_path, make_batch):
    segments = []
    for base in (0, 10, 20):
        segment = Segment.create(Files(), str(tmp_path), base, created_ms=T0)
        add(segment, make_batch(1, base_offset=base))
        segments.append(segment)
    cache = SegmentCache(limit=2)
    for segment in (segments[0], segments[1], segments[0], segments[2]):
        cache.touch(segment)
    assert [segment.file is not None for segment in segments] == [True, False, True]
    cache.discard(segments[0])
    assert len(cache) == 1


def test_a_row_of_segments_knows_its_size_and_order(tmp_path, make_batch):
    row = Segments([Segment.create(Files(), str(tmp_path), 0, created_ms=T0)], SegmentCache())
    sizes = []
    for base in (0, 10, 20):
        if base:
            row.append(Segment.create(Files(), str(tmp_path), base, created_ms=T0))
        add(row.active, make_batch(1, base_offset=base))
        sizes.append(row.active.size)
    assert row.size_bytes == sum(sizes)
    assert [(segment.base_offset, after) for segment, after in row.starting_with(15)] == [(10, 20), (20, None)]
    assert row.remove_first().base_offset == 0
    assert row.remove_active().base_offset == 20
    assert (len(row), row.size_bytes, row.active.base_offset, row.first_offset) == (1, sizes[1], 10, 10)


def test_nothing_is_cut_beyond_the_end_or_before_the_first_offset(segment):
    with pytest.raises(AssertionError, match="cannot cut"):
        segment.truncate(offset=segment.base_offset, position=segment.size + 1)
    with pytest.raises(AssertionError, match="lies before the segment's first"):
        segment.truncate(offset=segment.base_offset - 1, position=0)
