from tidemark.broker.coordination.batch import build
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_key,
    encode_value,
)
from tidemark.protocol.records import check_single_batch, iter_records

COMMIT = CoordinatorRecord(
    OffsetCommitKey(group="g", topic="t", partition=3),
    OffsetCommitValue(offset=7, leader_epoch=2, metadata="m" * 300, commit_timestamp=99, topic_id=b"i" * 16),
    4,
)
GROUP = CoordinatorRecord(
    GroupMetadataKey(group="g"),
    GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="a",
        current_state_timestamp=1,
        members=[MemberMetadata(member_id="a", client_id="c", client_host="/h", assignment=b"x" * 70)],
    ),
    3,
)
TOMBSTONE = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=4), None)


def test_a_batch_is_a_valid_one_and_holds_what_went_in() -> None:
    for records in ([COMMIT], [COMMIT, GROUP, TOMBSTONE], [COMMIT] * 100):
        batch, header = build(records, now_ms=1_700_000_000_000)
        assert check_single_batch(memoryview(batch)) == header
        read_back = list(iter_records(batch))
        assert [decode(record.key or b"", record.value) for record in read_back] == records
        assert [record.offset for record in read_back] == list(range(len(records)))
        assert {record.timestamp for record in read_back} == {1_700_000_000_000}


def test_the_builder_writes_what_the_plain_encoder_writes() -> None:
    batch, _ = build([COMMIT], now_ms=5)
    [record] = iter_records(batch)
    assert record.key == encode_key(COMMIT.key)
    assert record.value == encode_value(COMMIT.value, 4)
