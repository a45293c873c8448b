from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.storage.errors import CorruptFile
from tidemark.storage.files import Files
from tidemark.storage.snapshots import SnapshotFiles, decode, encode

ENTRY = (7, 1, 20, 120, 3, 1_700_000_000_000, 4, -1)


def test_a_snapshot_has_kafkas_layout():
    data = encode([ENTRY])
    assert struct.unpack_from(">h", data) == (1,)
    assert struct.unpack_from(">iqhiqiqiq", data, 6) == (1, *ENTRY)


@given(
    st.lists(
        st.tuples(
            st.integers(0, (1 << 63) - 1),
            st.integers(0, 32767),
            st.integers(-1, (1 << 31) - 1),
            st.integers(-1, (1 << 63) - 1),
            st.integers(0, (1 << 31) - 1),
            st.integers(-1, (1 << 63) - 1),
            st.integers(-1, (1 << 31) - 1),
            st.integers(-1, (1 << 63) - 1),
        ),
        max_size=5,
    ),
    st.data(),
)
def test_a_snapshot_survives_a_round_trip_and_no_flipped_bit(entries, data):
    encoded = bytearray(encode(entries))
    assert decode(bytes(encoded), path="x") == entries
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptFile):
        decode(bytes(encoded), path="x")


@given(st.integers(0, 60))
def test_a_cut_snapshot_is_refused(length):
    with pytest.raises(CorruptFile):
        decode(encode([ENTRY])[: min(length, 55)], path="x")


def test_the_newest_readable_snapshot_is_taken_and_damaged_ones_removed(tmp_path):
    files = SnapshotFiles(Files(), str(tmp_path))
    for offset in (10, 20, 30, 40):
        files.take(offset, [(*ENTRY[:3], offset, *ENTRY[4:])])
    (tmp_path / "00000000000000000030.snapshot").write_bytes(b"rubbish")
    loaded = files.load_newest(up_to=39)
    assert loaded is not None
    assert (loaded[0], loaded[1][0][3]) == (20, 20)
    assert files.offsets() == [10, 20, 40]
    assert not (tmp_path / "00000000000000000030.snapshot").exists()


def test_a_snapshot_of_an_offset_is_taken_once(tmp_path):
    files = SnapshotFiles(Files(), str(tmp_path))
    files.take(10, [ENTRY])
    files.take(10, [])
    assert files.load_newest(up_to=10) == (10, [ENTRY])


def test_old_snapshots_go_but_those_of_segments_and_the_newest_stay(tmp_path):
    files = SnapshotFiles(Files(), str(tmp_path))
    for offset in (10, 20, 30, 40):
        files.take(offset, [])
    files.keep_only({20})
    assert files.offsets() == [20, 40]
    files.remove_after(20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000000000000000020.snapshot"]
