"""What the files of a log hold, entry by entry, as plain values. Damage is shown where it is, and what follows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from tidemark.protocol.records import BatchHeader, InvalidBatch, iter_records, read_end_transaction
from tidemark.storage import checkpoints, names, snapshots
from tidemark.storage.aborted import ENTRY as ABORTED_ENTRY
from tidemark.storage.errors import CorruptFile, StorageError
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.index import OffsetIndex, TimeIndex
from tidemark.storage.scan import Damage, Window, crc_matches, find_batch, header_at
from tidemark.storage.tools.places import NoLogHere, find_partitions

Entry = dict[str, Any]  # what a line of the dump tells, by name
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_PRODUCER_FIELDS = (
    "producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch",
    "current_txn_first_offset",
)  # fmt: skip
_ABORTED_FIELDS = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")


class UnknownFile(StorageError):
    """The file's name says nothing of what it holds."""


def dump(path: str, *, records: bool = False, files: Files = REAL_FILES) -> Iterator[tuple[str, Iterator[Entry]]]:
    """(path, entries) of one file, or of every file of the partitions in a directory."""
    if not files.exists(path):
        raise NoLogHere(f"There is no {path}.")
    if not files.is_directory(path):
        yield path, _read(files, path, records=records)
        return
    for place in find_partitions(files, path):
        for name in sorted(files.list(place.path)):
            if _reader(name) is not None:
                inside = os.path.join(place.path, name)
                yield inside, _read(files, inside, records=records)


def _read(files: Files, path: str, *, records: bool) -> Iterator[Entry]:
    name = os.path.basename(path)
    if name.endswith(names.LOG) or (names.LOG + ".") in name:
        return _batches(files, path, records=records)
    reader = _reader(name)
    if reader is None:
        raise UnknownFile(f"{path}: by its name this is no file of a log.")
    return reader(files, path)


def _reader(name: str) -> Callable[[Files, str], Iterator[Entry]] | None:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for suffix in (names.DELETED, names.SWAP, names.CLEANED):
        name = name.removesuffix(suffix)
    return _BY_SUFFIX.get(os.path.splitext(name)[1])


# Segments


def _all_batches(files: Files, path: str) -> Iterator[Entry]:
    return _batches(files, path, records=False)


def _batches(files: Files, path: str, *, records: bool) -> Iterator[Entry]:
    file = files.open_to_read(path)
    try:
        fd, end, position = file.fileno(), files.size(path), 0
        window = Window(files, fd)
        while position < end:
            try:
                header = header_at(window, position, end=end)
            except Damage as damage:
                following = find_batch(files, fd, position=position + 1, end=end, next_offset=0)
                yield {"type": "damage", "position": position, "reason": damage.reason, "next_batch": following}
                position = end if following is None else following
                continue
            yield _batch(header, position, is_valid=crc_matches(window, files, position, header))
            if records:
                yield from _records(files.read_range(fd, position=position, length=header.size), header)
            position += header.size
    finally:
        file.close()


def _batch(header: BatchHeader, position: int, *, is_valid: bool) -> Entry:
    codec = header.compression
    return {
        "type": "batch",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": TIMESTAMP_TYPES[header.timestamp_type],
        "compression": CODECS[codec] if codec < len(CODECS) else str(codec),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "partition_leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": header.crc,
        "is_valid": is_valid,
    }


def _records(batch: bytes, header: BatchHeader) -> Iterator[Entry]:
    try:
        if header.is_control and (marker := read_end_transaction(batch)) is not None:
            kind = "COMMIT" if marker.commit else "ABORT"
            yield {"type": "marker", "offset": header.base_offset, "marker": kind, **_coordinator(marker)}
            return
        for record in iter_records(batch):
            yield {
                "type": "record",
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": [list(each) for each in record.headers],
            }
    except InvalidBatch as error:
        yield {"type": "damage", "position": -1, "reason": str(error), "next_batch": None}


def _coordinator(marker: Any) -> Entry:
    return {"coordinator_epoch": marker.coordinator_epoch}


# Indexes and snapshots


def _offset_index(files: Files, path: str) -> Iterator[Entry]:
    base = names.offset_of(os.path.basename(path)) or 0
    for at, offset, position in _pairs(files.read_all(path), OffsetIndex.ENTRY_SIZE, 4):
        yield {"type": "offset", "entry": at, "offset": base + offset, "position": position}


def _time_index(files: Files, path: str) -> Iterator[Entry]:
    base = names.offset_of(os.path.basename(path)) or 0
    for at, timestamp, offset in _pairs(files.read_all(path), TimeIndex.ENTRY_SIZE, 8):
        yield {"type": "time", "entry": at, "timestamp": timestamp, "offset": base + offset}


def _pairs(data: bytes, size: int, first: int) -> Iterator[tuple[int, int, int]]:
    """Entries of two numbers, as many as there are before the zeros that Kafka fills its files up with."""
    used = len(data.rstrip(b"\0"))
    for at in range((used + size - 1) // size):
        entry = data[at * size : at * size + size]
        yield at, int.from_bytes(entry[:first], "big", signed=True), int.from_bytes(entry[first:], "big", signed=True)


def _aborted_index(files: Files, path: str) -> Iterator[Entry]:
    data = files.read_all(path)
    whole = len(data) - len(data) % ABORTED_ENTRY.size
    for entry in ABORTED_ENTRY.iter_unpack(data[:whole]):
        yield {"type": "aborted", **dict(zip(_ABORTED_FIELDS, entry, strict=True))}
    if whole < len(data):
        yield {"type": "damage", "position": whole, "reason": "this is no whole entry", "next_batch": None}


def _snapshot(files: Files, path: str) -> Iterator[Entry]:
    try:
        for entry in snapshots.decode(files.read_all(path), path=path):
            yield {"type": "producer", **dict(zip(_PRODUCER_FIELDS, entry, strict=True))}
    except CorruptFile as error:
        yield {"type": "damage", "position": 0, "reason": str(error), "next_batch": None}


# Text files


def _lines(kind: str, fields: tuple[str, ...]) -> Callable[[Files, str], Iterator[Entry]]:
    def read(files: Files, path: str) -> Iterator[Entry]:
        try:
            for line in checkpoints.decode_lines(files.read_all(path), path=path):
                yield {"type": kind, **dict(zip(fields, line.rsplit(" ", len(fields) - 1), strict=False))}
        except CorruptFile as error:
            yield {"type": "damage", "position": 0, "reason": str(error), "next_batch": None}

    return read


def _properties(files: Files, path: str) -> Iterator[Entry]:
    yield {"type": "properties", **checkpoints.read_properties(files, path)}


def _partition_metadata(files: Files, path: str) -> Iterator[Entry]:
    topic_id = checkpoints.read_partition_metadata(files, path)
    if topic_id is None:
        yield {"type": "damage", "position": 0, "reason": "it names no topic id", "next_batch": None}
    else:
        yield {"type": "topic", "topic_id": checkpoints.topic_id_text(topic_id)}


_offsets = _lines("checkpoint", ("topic", "partition", "offset"))
_BY_NAME = {
    names.EPOCHS: _lines("epoch", ("epoch", "start_offset")),
    names.PARTITION_METADATA: _partition_metadata,
    checkpoints.META_PROPERTIES: _properties,
    checkpoints.RECOVERY_POINTS: _offsets,
    checkpoints.START_OFFSETS: _offsets,
    checkpoints.HIGH_WATERMARKS: _offsets,
    "cleaner-offset-checkpoint": _offsets,
}
_BY_SUFFIX = {
    names.LOG: _all_batches,
    names.OFFSET_INDEX: _offset_index,
    names.TIME_INDEX: _time_index,
    names.ABORTED_INDEX: _aborted_index,
    names.SNAPSHOT: _snapshot,
}
