"""A segment in windows: whole batches, in order, and never more in memory than fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidemark.protocol.records import HEADER_SIZE, Record, build_batch
from tidemark.storage.cleaning.job import CleaningFailed
from tidemark.storage.cleaning.record_table import read_records
from tidemark.storage.cleaning.windows import Window, windows
from tidemark.storage.files import REAL_FILES

ZSTD = 4
VALUE = bytes(1000)


def batch_of(count: int, *, base_offset: int, compression: int = ZSTD) -> bytes:
    records = [Record(timestamp=1, key=b"key%d" % at, value=VALUE) for at in range(count)]
    batch = bytearray(build_batch(records, compression=compression))
    batch[:8] = base_offset.to_bytes(8, "big")  # not under the CRC
    return bytes(batch)


def segment(root: Path, batches: list[bytes]) -> str:
    path = root / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    return str(path)


def read(path: str, **limits: int) -> list[Window]:
    size = Path(path).stat().st_size
    return list(windows(REAL_FILES, path, start=0, end=size, paced=lambda _: None, **limits))


def raw(window: Window) -> bytes:
    return bytes(window.data[: int(window.ends[-1])])


def expanded_bytes(window: Window) -> int:
    return len(window.data) - len(raw(window))


def offsets(window: Window) -> list[int]:
    return [int(offset) for offset in read_records(window, np.arange(len(window))).offsets]


@pytest.mark.parametrize("compression", range(5))
def test_what_is_very_compressible_is_expanded_a_little_at_a_time(tmp_path: Path, compression: int) -> None:
    batches = [batch_of(10, base_offset=10 * at, compression=compression) for at in range(100)]
    found = read(segment(tmp_path, batches), expanded_bytes_max=50_000)
    assert b"".join(raw(each) for each in found) == b"".join(batches)
    assert [offset for each in found for offset in offsets(each)] == list(range(1000))
    largest = max(len(batch) for batch in batches) + 12_000  # of one batch
    assert max(expanded_bytes(each) for each in found) < 50_000 + largest
    if compression:
        assert len(found) == 20


def test_a_window_has_a_limited_number_of_records(tmp_path: Path) -> None:
    batches = [batch_of(10, base_offset=10 * at) for at in range(30)]
    found = read(segment(tmp_path, batches), records_max=100)
    assert [len(each) for each in found] == [10, 10, 10]
    assert [offset for each in found for offset in offsets(each)] == list(range(300))


def test_a_batch_that_is_larger_than_any_limit_has_a_window_of_its_own(tmp_path: Path) -> None:
    batches = [batch_of(50, base_offset=50 * at, compression=at % 2 * ZSTD) for at in range(4)]
    found = read(segment(tmp_path, batches), window_bytes=100, expanded_bytes_max=1, records_max=1)
    assert [raw(each) for each in found] == batches


def test_damage_is_told_by_its_place_in_the_file(tmp_path: Path) -> None:
    batches = [batch_of(10, base_offset=10 * at) for at in range(3)]
    broken = bytearray(batches[2])
    broken[HEADER_SIZE + 3] ^= 1
    path = segment(tmp_path, [*batches[:2], bytes(broken)])
    with pytest.raises(CleaningFailed, match=f"damaged at byte {len(batches[0]) + len(batches[1])}"):
        read(path, expanded_bytes_max=1)
