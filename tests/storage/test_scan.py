from __future__ import annotations

from typing import Any

import pytest

from tidemark.storage import scan
from tidemark.storage.files import Files
from tidemark.storage.scan import Damage, checked_headers, find_batch, find_offset, headers

FILES = Files()


@pytest.fixture
def file(tmp_path):
    """Writes bytes to a file and returns its descriptor and size."""
    opened: list[Any] = []

    def make(data: bytes) -> tuple[int, int]:
        path = tmp_path / f"{len(opened)}.log"
        path.write_bytes(data)
        opened.append(FILES.open_data(str(path)))
        return opened[-1].fileno(), len(data)

    return make


@pytest.fixture
def batches(make_batch):
    return [bytes(make_batch(3, size=100, base_offset=10 * number)) for number in range(40)]


def positions(batches):
    return [sum(map(len, batches[:number])) for number in range(len(batches))]


@pytest.mark.parametrize("window", [61, 100, 1000, 1 << 16])
def test_every_header_is_found_with_any_window(file, batches, window):
    fd, size = file(b"".join(batches))
    found = list(headers(FILES, fd, position=0, end=size, window=window))
    assert [position for position, _ in found] == positions(batches)
    assert [header.base_offset for _, header in found] == [10 * number for number in range(40)]


@pytest.mark.parametrize("missing", [1, 60, 300])
def test_a_walk_ends_with_damage_where_the_file_ends_early(file, batches, missing):
    fd, size = file(b"".join(batches)[:-missing])
    walked: list[Any] = []
    with pytest.raises(Damage) as caught:
        walked.extend(position for position, _ in iterate(headers(FILES, fd, position=0, end=size), walked))
    assert caught.value.position == positions(batches)[-1]
    assert caught.value.past_end


def iterate(placed, walked):
    yield from placed


def test_checked_headers_stop_at_a_wrong_crc(file, batches):
    data = bytearray(b"".join(batches))
    data[positions(batches)[5] + 80] ^= 1
    fd, size = file(bytes(data))
    with pytest.raises(Damage, match="CRC") as caught:
        list(checked_headers(FILES, fd, position=0, end=size, next_offset=0))
    assert caught.value.position == positions(batches)[5]


@pytest.mark.parametrize("window", [61, 100, 1000, 1 << 16])
@pytest.mark.parametrize("number", [0, 1, 2, 38, 39])
def test_one_wrong_byte_of_any_batch_ends_a_checked_walk_there(file, batches, monkeypatch, window, number):
    """Whether the walk meets it in the block that it has just read or in one that it has at hand."""
    monkeypatch.setattr(scan, "_WINDOW", window)
    begin = positions(batches)[number]
    walked = []
    for place in (*range(8, 12), *range(16, 61), len(batches[number]) - 1):  # all but offset and epoch
        data = bytearray(b"".join(batches))
        data[begin + place] ^= 0x80
        fd, size = file(bytes(data))
        with pytest.raises(Damage) as caught:
            walked = [position for position, _ in checked_headers(FILES, fd, position=0, end=size, next_offset=0)]
        assert caught.value.position == begin
        assert not walked


def test_checked_headers_stop_where_offsets_go_back(file, batches):
    fd, size = file(batches[3] + batches[2])
    with pytest.raises(Damage, match="offset 20 after 32"):
        list(checked_headers(FILES, fd, position=0, end=size, next_offset=0))


@pytest.mark.parametrize("garbage", [b"", b"x", b"\2" * 500, b"\0" * 70_000, b"\2\0" * 40_000])
def test_the_next_whole_batch_is_found_behind_garbage(file, batches, garbage):
    fd, size = file(garbage + batches[4])
    assert find_batch(FILES, fd, position=0, end=size, next_offset=0) == len(garbage)
    assert find_batch(FILES, fd, position=0, end=size, next_offset=41) is None
    assert find_batch(FILES, fd, position=len(garbage) + 1, end=size, next_offset=0) is None


def test_no_batch_is_found_where_there_is_none(file):
    fd, size = file(b"\2" * 200_000)
    assert find_batch(FILES, fd, position=0, end=size, next_offset=0) is None


@pytest.mark.parametrize("window", [61, 200, 8192])
def test_offsets_are_found_as_by_the_plain_walk(file, batches, monkeypatch, window):
    monkeypatch.setattr(scan, "_LOCATE_WINDOW", window)
    fd, size = file(b"".join(batches))
    for offset in range(400):
        expected = next(
            (at for at, header in headers(FILES, fd, position=0, end=size) if header.last_offset >= offset), size
        )
        assert find_offset(FILES, fd, offset, position=0, end=size, first_last=None) == expected


def test_an_index_that_lies_is_noticed(file, batches):
    fd, size = file(b"".join(batches))
    with pytest.raises(Damage, match="index"):
        find_offset(FILES, fd, 55, position=positions(batches)[2], end=size, first_last=23)
    with pytest.raises(Damage):
        find_offset(FILES, fd, 55, position=positions(batches)[2] + 7, end=size, first_last=22)
