"""Are the records of a batch what its header says? One pass over all of them, in slices, without building any.

A record is a row of varints and bytes: its size, attributes, timestamp delta, offset delta, key, value, headers. It is
sound if they fill its size exactly, the records fill the payload exactly, and the n-th has offset delta n, from which
consumers compute offsets. The varints of one and two bytes, of which records are made, are read without a call: that
makes it about a microsecond per record, where `iter_records` takes five.
"""

from __future__ import annotations

from typing import Final

from tidemark.protocol.batch import BatchHeader, Buffer
from tidemark.protocol.record import InvalidRecord

NO_TIMESTAMP: Final = -1
RECORD_BYTES_MIN: Final = 7  # six empty fields and a size
INT_SHIFT_MAX: Final = 28  # a varint of 32 bits has at most five bytes
LONG_SHIFT_MAX: Final = 63
INDEXES_MAX: Final = 1000  # of records at fault, in an answer


class RecordScan:
    """Call `advance` until it says that it is done. Raises InvalidRecord where the payload is malformed."""

    __slots__ = (
        "_base_timestamp",
        "_count",
        "_earliest",
        "_index",
        "_largest_delta",
        "_latest",
        "_payload",
        "_position",
        "keyless",
        "untimely",
    )

    def __init__(self, header: BatchHeader, payload: Buffer, *, earliest: int, latest: int) -> None:
        """`earliest` and `latest` bound the timestamps that records may have."""
        if header.record_count * RECORD_BYTES_MIN > len(payload):
            raise InvalidRecord(f"{header.record_count} records do not fit into {len(payload)} bytes")
        self._payload = payload
        self._count = header.record_count
        self._base_timestamp = header.base_timestamp
        self._earliest = earliest - header.base_timestamp
        self._latest = latest - header.base_timestamp
        self._largest_delta = -(1 << 64)
        self._index = self._position = 0
        self.keyless: list[int] = []  # records without a key, the first of them
        self.untimely: list[int] = []  # records with a timestamp out of bounds, likewise

    @property
    def max_timestamp(self) -> int:
        """Of the records seen so far."""
        return self._base_timestamp + self._largest_delta

    def advance(self, records_max: int) -> bool:
        """Looks at up to `records_max` more records. Whether all have been seen."""
        start, stop = self._index, min(self._index + records_max, self._count)
        try:
            self._scan(start, stop)
        except IndexError:
            raise InvalidRecord(f"the payload ends within record {self._index} of {self._count}") from None
        self._index = stop
        if stop < self._count:
            return False
        if self._position != len(self._payload):
            left = len(self._payload) - self._position
            raise InvalidRecord(f"{left} bytes follow the last of {self._count} records")
        return True

    def _scan(self, start: int, stop: int) -> None:
        # One function and no calls, however long: this is every byte of metadata of every record.
        payload, pos = self._payload, self._position
        earliest, latest, largest = self._earliest, self._latest, self._largest_delta
        for twice in range(2 * start, 2 * stop, 2):  # the zigzag form of the offset delta that must come
            size = payload[pos]
            pos += 1
            if size > 0x7F:
                byte = payload[pos]
                if byte < 0x80:
                    size = size & 0x7F | byte << 7
                    pos += 1
                else:
                    size, pos = _read_raw(payload, pos - 1, INT_SHIFT_MAX)
            begin = pos
            delta = payload[pos + 1]  # after the attributes, of which none is defined
            pos += 2
            if delta > 0x7F:
                byte = payload[pos]
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                    pos += 1
                else:
                    delta, pos = _read_raw(payload, pos - 1, LONG_SHIFT_MAX)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta > largest:
                largest = delta
            if not earliest <= delta <= latest:
                self._note_untimely(twice // 2, delta)
            offset = payload[pos]
            pos += 1
            if offset > 0x7F:
                byte = payload[pos]
                if byte < 0x80:
                    offset = offset & 0x7F | byte << 7
                    pos += 1
                else:
                    offset, pos = _read_raw(payload, pos - 1, INT_SHIFT_MAX)
            if offset != twice:
                raise InvalidRecord(f"record {twice // 2} has offset delta {_signed(offset)}")
            length = payload[pos]  # of the key
            pos += 1
            if length > 0x7F:
                length, pos = _read_raw(payload, pos - 1, INT_SHIFT_MAX)
            if not length & 1:
                pos += length >> 1
            elif len(self.keyless) < INDEXES_MAX:
                self.keyless.append(twice // 2)
            length = payload[pos]  # of the value
            pos += 1
            if length > 0x7F:
                byte = payload[pos]
                if byte < 0x80:
                    length = length & 0x7F | byte << 7
                    pos += 1
                else:
                    length, pos = _read_raw(payload, pos - 1, INT_SHIFT_MAX)
            if not length & 1:
                pos += length >> 1
            if payload[pos]:
                pos = _skip_headers(payload, pos)
            else:
                pos += 1
            if 2 * (pos - begin) != size:
                raise InvalidRecord(f"record {twice // 2} has {pos - begin} bytes, and says {_signed(size)}")
        self._position, self._largest_delta = pos, largest

    def _note_untimely(self, index: int, delta: int) -> None:
        if self._base_timestamp + delta != NO_TIMESTAMP and len(self.untimely) < INDEXES_MAX:
            self.untimely.append(index)


def _skip_headers(payload: Buffer, pos: int) -> int:
    count, pos = _read_raw(payload, pos, INT_SHIFT_MAX)
    if count & 1 or count > len(payload) - pos:  # twice the count, and each has two sizes
        raise InvalidRecord(f"{_signed(count)} headers in a record with {len(payload) - pos} bytes left")
    for _ in range(count >> 1):
        length, pos = _read_raw(payload, pos, INT_SHIFT_MAX)
        if length & 1:
            raise InvalidRecord("header without a key")
        length_of_value, pos = _read_raw(payload, pos + (length >> 1), INT_SHIFT_MAX)
        if not length_of_value & 1:
            pos += length_of_value >> 1
    if pos > len(payload):
        raise InvalidRecord("the last header ends after the payload")
    return pos


def _read_raw(payload: Buffer, pos: int, shift_max: int) -> tuple[int, int]:
    """A varint before it is unfolded (twice the number, or odd if that is negative), and the position after it."""
    raw = shift = 0
    while True:
        byte = payload[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, pos
        shift += 7
        if shift > shift_max:
            raise InvalidRecord(f"the varint before byte {pos} is too long")


def _signed(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)
