import pytest

from tidemark.broker.coordination.record import CoordinatorRecord, UnknownCoordinatorRecord
from tidemark.broker.groups.records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_key,
    encode_value,
)
from tidemark.protocol.schema import DecodeError


def test_an_offset_is_written_byte_for_byte_as_kafka_writes_it() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert encode_key(key) == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3"
    assert encode_value(value, 3) == b"\0\3" + (7).to_bytes(8) + (2).to_bytes(4) + b"\0\1m" + (9).to_bytes(8)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_can_be_read(version: int) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    assert decode(encode_key(key), encode_value(value, version)) == CoordinatorRecord(key, value, version)


def test_the_oldest_offset_keys_can_be_read() -> None:
    key = b"\0\0" + encode_key(OffsetCommitKey(group="g", topic="t", partition=3))[2:]
    assert decode(key, None).key == OffsetCommitKey(group="g", topic="t", partition=3)


def test_a_tombstone_has_no_value() -> None:
    assert decode(encode_key(GroupMetadataKey(group="g")), None) == CoordinatorRecord(GroupMetadataKey(group="g"), None)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", None), (b"\0", None), (b"\x7f\xff", b"\0\0"), (b"\0\2\0\1g", b"\0\x63")]
)
def test_a_record_of_an_unknown_kind_is_told_from_a_broken_one(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnknownCoordinatorRecord):
        decode(key, value)


def test_a_broken_record_raises_only_a_decode_error() -> None:
    whole = encode_key(OffsetCommitKey(group="group", topic="topic", partition=3))
    for length in range(2, len(whole)):
        with pytest.raises(DecodeError):
            decode(whole[:length], None)
