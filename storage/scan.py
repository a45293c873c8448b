"""Walking over the batches of a segment file, a window at a time: never a whole segment in memory."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tidemark.protocol.records import HEADER_SIZE, BatchHeader, crc32c, read_header
from tidemark.storage.errors import StorageError
from tidemark.storage.files import Files

LENGTH_END = 12  # base offset and length: what precedes the part that `batch_length` counts
CRC_START = 21  # the first byte that a batch's CRC covers
MAGIC_AT = 16
_MAGIC = 2
_LENGTH_MIN = HEADER_SIZE - LENGTH_END
_WINDOW = 64 << 10
_CRC_CHUNK = 1 << 20
_LOCATE_WINDOW = 8 << 10  # an index interval and then some
_OFFSETS = Struct(">qi11xi")  # of a header: base offset, length, last offset delta

Placed = tuple[int, BatchHeader]  # a position in the file and the header found there


class Damage(StorageError):
    """The bytes at `position` are no whole, plausible batch."""

    def __init__(self, position: int, reason: str, *, past_end: bool = False, is_whole: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason
        self.past_end = past_end  # the file ends before the batch does
        self.is_whole = is_whole  # the batch there is, by its CRC, which does not cover its offset


class Window:
    """A moving view of a file: answers header-sized reads from the last block it fetched."""

    __slots__ = ("_block", "_files", "_size", "_start", "fd")

    def __init__(self, files: Files, fd: int, *, size: int = _WINDOW) -> None:
        self._files = files
        self.fd = fd
        self._size = size
        self._start = 0
        self._block = b""

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """A block and the place in it where `position` lies, with `length` bytes from there if the file has them."""
        place = position - self._start
        if place < 0 or place + length > len(self._block):
            self._block = self._files.read_range(self.fd, position=position, length=max(length, self._size))
            self._start = position
            place = 0
        return self._block, place

    def held(self, position: int) -> tuple[bytes, int]:
        """The last block and the place in it where `position` lies, or would."""
        return self._block, position - self._start


def header_at(window: Window, position: int, *, end: int) -> BatchHeader:
    """The header at `position` of a batch that must end at or before `end`; raises Damage."""
    if end - position < HEADER_SIZE:
        raise Damage(position, f"{end - position} bytes are left, too few for a batch header", past_end=True)
    block, place = window.at(position, HEADER_SIZE)
    if len(block) - place < HEADER_SIZE:
        raise Damage(position, "the file ends inside a batch header", past_end=True)
    header = read_header(block, place)
    if header.magic != _MAGIC:
        raise Damage(position, f"magic {header.magic} is not a batch's")
    if header.batch_length < _LENGTH_MIN:
        raise Damage(position, f"batch length {header.batch_length} is smaller than a header")
    if position + LENGTH_END + header.batch_length > end:
        size = LENGTH_END + header.batch_length
        raise Damage(position, f"a batch of {size} bytes runs past the end at {end}", past_end=True)
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise Damage(position, f"offsets {header.base_offset}+{header.last_offset_delta} are impossible")
    return header


def _plain_headers(block: bytes, place: int, end: int) -> Iterator[tuple[int, int, BatchHeader]]:
    """(where it begins, where it ends, header) of each batch that lies in a block whole. A log may have millions, so
    this is one step for each: at the first that is unlike the others it stops, and `header_at` tells what it is."""
    while place + HEADER_SIZE <= end:
        header = read_header(block, place)
        after = place + LENGTH_END + header[1]
        if after > end or header[1] < _LENGTH_MIN or header[3] != _MAGIC or header[0] < 0 or header[6] < 0:
            return
        yield place, after, header
        place = after


def headers(files: Files, fd: int, *, position: int, end: int, window: int = _WINDOW) -> Iterator[Placed]:
    """(position, header) of each batch from `position` up to `end`. CRCs are not looked at; raises Damage."""
    view = Window(files, fd, size=window)
    while position < end:
        header = header_at(view, position, end=end)
        yield position, header
        position += LENGTH_END + header.batch_length
        block, first = view.held(position)
        shift = position - first
        for place, after, header in _plain_headers(block, first, min(len(block), end - shift)):
            yield place + shift, header
            position = after + shift


def find_offset(files: Files, fd: int, offset: int, *, position: int, end: int, first_last: int | None) -> int:
    """Where the first batch starts, from `position` on, that ends at or after `offset`; `end` if there is none.

    The same walk as `headers`, but a reader waits for this one: it looks at three fields of a header and no more. If
    `first_last` is given, it is what an index says of the first batch's last offset; Damage if that is not so.
    """
    unpack = _OFFSETS.unpack_from
    while position < end:
        block = files.pread(fd, _LOCATE_WINDOW, position)
        place, whole = 0, len(block) - HEADER_SIZE
        if whole < 0:
            raise Damage(position, "the file ends inside a batch header", past_end=True)
        while place <= whole and position + place < end:
            base_offset, length, delta = unpack(block, place)
            last_offset = base_offset + delta
            if length < _LENGTH_MIN or position + place + LENGTH_END + length > end:
                raise Damage(position + place, f"a batch of {LENGTH_END + length} bytes cannot be here")
            if first_last is not None and last_offset != first_last:
                raise Damage(position, "the index does not match the log")
            first_last = None
            if last_offset >= offset:
                return position + place
            place += LENGTH_END + length
        position += place
    return end


def crc_matches(window: Window, files: Files, position: int, header: BatchHeader) -> bool:
    """Checks a batch's CRC, a megabyte at a time where the batch is larger than the window."""
    first = position + CRC_START
    left = header.batch_length - (CRC_START - LENGTH_END)
    if left <= _WINDOW:
        block, place = window.at(first, left)
        return crc32c(memoryview(block)[place : place + left]) == header.crc
    crc = 0
    while left > 0:
        chunk = files.read_range(window.fd, position=first, length=min(left, _CRC_CHUNK))
        if not chunk:
            return False
        crc = crc32c(chunk, crc)
        first += len(chunk)
        left -= len(chunk)
    return crc == header.crc


def checked_headers(files: Files, fd: int, *, position: int, end: int, next_offset: int) -> Iterator[Placed]:
    """As `headers`, but each batch is whole (CRC) and follows the one before; raises Damage at the first that isn't."""
    window = Window(files, fd, size=4 * _WINDOW)
    while position < end:
        header = header_at(window, position, end=end)
        if header.base_offset < next_offset:
            is_whole = crc_matches(window, files, position, header)
            raise Damage(position, f"offset {header.base_offset} after {next_offset - 1}", is_whole=is_whole)
        if not crc_matches(window, files, position, header):
            raise Damage(position, "the CRC does not match")
        yield position, header
        position += LENGTH_END + header.batch_length
        next_offset = header.base_offset + header.last_offset_delta + 1
        block, first = window.held(position)
        view = memoryview(block)
        shift = position - first
        for place, after, header in _plain_headers(block, first, min(len(block), end - shift)):
            if header[0] < next_offset or crc32c(view[place + CRC_START : after]) != header[4]:
                break
            yield place + shift, header
            position = after + shift
            next_offset = header[0] + header[6] + 1


def find_batch(files: Files, fd: int, *, position: int, end: int, next_offset: int) -> int | None:
    """Where the next whole batch (right CRC, an offset not before `next_offset`) starts at or after `position`.

    Tries every byte that could be a batch's magic. That is slow beside a walk, and bounded by the segment's size; it
    runs only when a segment turned out to be damaged.
    """
    window = Window(files, fd)
    step = _WINDOW - HEADER_SIZE
    while end - position >= HEADER_SIZE:
        block = files.read_range(fd, position=position, length=_WINDOW)
        at = block.find(_MAGIC, MAGIC_AT, step + MAGIC_AT)
        while at >= 0:
            start = position + at - MAGIC_AT
            if _is_batch(window, files, start, end=end, next_offset=next_offset):
                return start
            at = block.find(_MAGIC, at + 1, step + MAGIC_AT)
        position += step
    return None


def _is_batch(window: Window, files: Files, position: int, *, end: int, next_offset: int) -> bool:
    try:
        header = header_at(window, position, end=end)
    except Damage:
        return False
    return header.base_offset >= next_offset and crc_matches(window, files, position, header)
