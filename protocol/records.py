"""Record batches, magic 2: the public face of batch, record and control."""

from __future__ import annotations

from tidemark.protocol.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatch,
    InvalidBatch,
    InvalidProducerFields,
    InvalidRecordCount,
    NotOneBatch,
    TruncatedBatch,
    UnknownMagic,
    UnsupportedMagic,
    check_batch,
    check_single_batch,
    iter_batches,
    place_batch,
    read_header,
    stamp_append_time,
    verify_batch,
    write_crc,
    write_max_timestamp,
)
from tidemark.protocol.checksum import crc32c
from tidemark.protocol.control import EndTransaction, build_end_transaction, read_end_transaction
from tidemark.protocol.record import InvalidRecord, Record, build_batch, iter_records, keyless_records, recompress

__all__ = [
    "HEADER_SIZE",
    "MAGIC",
    "BatchHeader",
    "Buffer",
    "CorruptBatch",
    "EndTransaction",
    "InvalidBatch",
    "InvalidProducerFields",
    "InvalidRecord",
    "InvalidRecordCount",
    "NotOneBatch",
    "Record",
    "TruncatedBatch",
    "UnknownMagic",
    "UnsupportedMagic",
    "build_batch",
    "build_end_transaction",
    "check_batch",
    "check_single_batch",
    "crc32c",
    "iter_batches",
    "iter_records",
    "keyless_records",
    "place_batch",
    "read_end_transaction",
    "read_header",
    "recompress",
    "stamp_append_time",
    "verify_batch",
    "write_crc",
    "write_max_timestamp",
]
