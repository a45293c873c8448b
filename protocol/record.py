"""The records inside a batch: for consoles, compaction, internal topics and tests, not for produce and fetch."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidemark.protocol.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    InvalidBatch,
    read_header,
    write_crc,
)
from tidemark.protocol.compression import LIMIT_BYTES, NONE, DecompressionError, compress, decompress

PAUSE_BYTES: Final = 16 << 10  # of a batch that is built, before others have their turn
RECORD_BYTES: Final = 512  # what a record takes beside its bytes, as if these were more
HEADERS_AT_ONCE: Final = 1_000  # of a record, before others have their turn

Header = tuple[str, bytes | None]


class InvalidRecord(InvalidBatch):
    """The payload of a batch is not a sequence of records."""


class Record(NamedTuple):
    offset: int = -1  # when building, -1 means the one after the record before
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


def payload_of(batch: Buffer, *, limit_bytes: int = LIMIT_BYTES) -> memoryview:
    """The bytes of a batch's records, decompressed."""
    view = memoryview(batch)
    try:
        return decompress(view[22] & 7, view[HEADER_SIZE:], limit_bytes=limit_bytes)
    except DecompressionError as error:
        raise InvalidRecord(str(error)) from error


def iter_records(batch: Buffer, *, limit_bytes: int = LIMIT_BYTES) -> Iterator[Record]:
    """Every record of one batch. Raises InvalidRecord where it is malformed; decompresses at most `limit_bytes`."""
    found = records_or_pauses(read_header(batch), payload_of(batch, limit_bytes=limit_bytes))
    return (record for record in found if record is not None)


def records_or_pauses(header: BatchHeader, payload: memoryview) -> Iterator[Record | None]:
    """As `iter_records`, of what `payload_of` a batch is; and None now and then while a record with very many headers
    is read, which takes long."""
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    for fields in _iter_fields(header, payload):
        if fields is None:
            yield None
            continue
        timestamp_delta, offset_delta, key, value, headers = fields
        timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def keyless_records(batch: Buffer, *, limit_bytes: int = LIMIT_BYTES) -> list[int]:
    """Which records of the batch have no key: a compacted topic has no use for them."""
    header = read_header(batch)
    keyless = []
    payload, pos = payload_of(batch, limit_bytes=limit_bytes), 0
    try:
        for index in range(header.record_count):
            stop, pos = _record_bounds(payload, pos)
            _, pos = read_varint(payload, pos + 1)  # past the attributes, over the timestamp
            _, pos = read_varint(payload, pos)  # the offset
            size, pos = read_varint(payload, pos)
            if size < 0:
                keyless.append(index)
            pos = stop
    except IndexError as error:
        raise InvalidRecord(f"batch of {header.record_count} records ends early") from error
    return keyless


_Fields = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]


def _iter_fields(header: BatchHeader, payload: memoryview) -> Iterator[_Fields | None]:
    pos = 0
    try:
        for _ in range(header.record_count):
            stop, pos = _record_bounds(payload, pos)
            timestamp_delta, pos = read_varint(payload, pos + 1)
            offset_delta, pos = read_varint(payload, pos)
            key, pos = _read_blob(payload, pos, stop)
            value, pos = _read_blob(payload, pos, stop)
            count, pos = read_varint(payload, pos)
            if not count:
                headers: Sequence[Header] = ()
            elif count <= HEADERS_AT_ONCE:
                headers, pos = _read_headers(count, payload, pos, stop)
            else:
                headers, pos = yield from _read_many_headers(count, payload, pos, stop)
            if pos != stop:
                raise InvalidRecord(f"record ends at byte {pos}, its length says {stop}")
            yield timestamp_delta, offset_delta, key, value, headers
    except IndexError as error:
        raise InvalidRecord(f"batch of {header.record_count} records ends early") from error
    if pos != len(payload):
        raise InvalidRecord(f"{len(payload) - pos} bytes follow the last of {header.record_count} records")


def _record_bounds(payload: memoryview, pos: int) -> tuple[int, int]:
    """Where the record at `pos` ends, and where what its length counts begins."""
    size, pos = read_varint(payload, pos)
    if not 0 < size <= len(payload) - pos:
        raise InvalidRecord(f"record of {size} bytes with {len(payload) - pos} left")
    return pos + size, pos


def _read_blob(payload: memoryview, pos: int, stop: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(payload, pos)
    if size < 0:
        return None, pos
    if size > stop - pos:
        raise InvalidRecord(f"field of {size} bytes in a record with {stop - pos} left")
    return bytes(payload[pos : pos + size]), pos + size


def _read_many_headers(
    count: int, payload: memoryview, pos: int, stop: int
) -> Generator[None, None, tuple[list[Header], int]]:
    if count > (stop - pos) // 2:
        raise InvalidRecord(f"{count} headers in a record with {stop - pos} bytes left")
    headers: list[Header] = []
    while len(headers) < count:
        some, pos = _read_headers(min(count - len(headers), HEADERS_AT_ONCE), payload, pos, stop)
        headers += some
        yield
    return headers, pos


def _read_headers(count: int, payload: memoryview, pos: int, stop: int) -> tuple[list[Header], int]:
    """So many headers of a record, and the position after them."""
    if not 0 <= count <= (stop - pos) // 2:
        raise InvalidRecord(f"{count} headers in a record with {stop - pos} bytes left")
    headers: list[Header] = []
    for _ in range(count):
        name, pos = _read_blob(payload, pos, stop)
        if name is None:
            raise InvalidRecord("header without a key")
        value, pos = _read_blob(payload, pos, stop)
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise InvalidRecord(f"header key: {error}") from error
    return headers, pos


def read_varint(buf: memoryview, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it."""
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    raw, shift = byte & 0x7F, 7
    while True:
        byte = buf[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFFFFFFFFFF:
                raise InvalidRecord("varint exceeds 64 bits")
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise InvalidRecord("varint is longer than ten bytes")


def put_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = NONE,
    timestamp_type: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """A whole batch. Raises ValueError when there is no record: Kafka has no empty batches."""
    building = build_batch_in_slices(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
        timestamp_type=timestamp_type,
        transactional=transactional,
        control=control,
    )
    try:
        while True:
            next(building)
    except StopIteration as stop:
        built: bytearray = stop.value
        return built


def build_batch_in_slices(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = NONE,
    timestamp_type: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> Generator[None, None, bytearray]:
    """As `build_batch`, with a pause after a few records, or a long one."""
    given = list(records)
    if not given:
        raise ValueError("a batch holds at least one record")
    base_timestamp = given[0].timestamp
    payload, delta, pause_at = bytearray(), -1, PAUSE_BYTES
    for record in given:
        delta = delta + 1 if record.offset < 0 else record.offset - base_offset
        _put_record(payload, record, timestamp_delta=record.timestamp - base_timestamp, offset_delta=delta)
        pause_at -= RECORD_BYTES
        if len(payload) > pause_at:
            pause_at = len(payload) + PAUSE_BYTES
            yield
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=compression | timestamp_type << 3 | (TRANSACTIONAL * transactional) | (CONTROL * control),
        last_offset_delta=delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in given),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(given),
    )
    return _assemble(header, compress(compression, payload))


def _put_record(out: bytearray, record: Record, *, timestamp_delta: int, offset_delta: int) -> None:
    parts = [b"\0", _varint(timestamp_delta), _varint(offset_delta)]  # its attributes: none are defined
    _put_blob(parts, record.key)
    _put_blob(parts, record.value)
    parts.append(_varint(len(record.headers)))
    for name, value in record.headers:
        _put_blob(parts, name.encode())
        _put_blob(parts, value)
    body = b"".join(parts)
    out += _varint(len(body))
    out += body


def _put_blob(parts: list[bytes], data: bytes | None) -> None:
    if data is None:
        parts.append(b"\x01")  # -1
        return
    parts.append(_varint(len(data)))
    parts.append(data)


def _varint(value: int) -> bytes:
    if 0 <= value < 64:  # nearly all but the lengths of values
        return _VARINTS[value]
    if 64 <= value < 8192:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6))
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


_VARINTS: Final = tuple(bytes((value << 1,)) for value in range(64))


def _assemble(header: BatchHeader, payload: bytes | memoryview) -> bytearray:
    """A batch of this header and payload, with length and CRC made right."""
    batch = bytearray(HEADER.pack(*header._replace(batch_length=HEADER_SIZE - 12 + len(payload), crc=0)))
    batch += payload
    write_crc(batch)
    return batch


def recompress(batch: Buffer, codec: int, *, level: int | None = None, limit_bytes: int = LIMIT_BYTES) -> bytearray:
    """The same records in the same batch, with another codec."""
    header = read_header(batch)
    if header.compression == codec:
        return bytearray(batch)
    return repacked(header, payload_of(batch, limit_bytes=limit_bytes), codec, level=level)


def repacked(header: BatchHeader, payload: memoryview, codec: int, *, level: int | None = None) -> bytearray:
    """The batch of this header with its payload, decompressed already, in another codec."""
    return _assemble(header._replace(attributes=header.attributes & ~7 | codec), compress(codec, payload, level=level))
