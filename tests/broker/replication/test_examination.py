"""What becomes of batches whose records are read: bounds, corrections, and the same verdict at once as on a thread."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.config import TopicConfig, load_config
from tidemark.broker.core.errors import EXPECTED, fault_of
from tidemark.broker.replication import examination
from tidemark.broker.replication.examination import Examination, MustWait, expanded_bytes_max
from tidemark.broker.replication.validation import BatchRules
from tidemark.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import Record, build_batch, check_batch, iter_records, read_header, write_crc

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000


def rules(**settings: str) -> BatchRules:
    overrides = {key.replace("_", "."): value for key, value in settings.items()}
    return BatchRules(TopicConfig.resolve(load_config(), overrides))


STRICT = {"tidemark_produce_validation": "strict"}


def made(*records: Record, **fields: Any) -> memoryview:
    return memoryview(build_batch(records or [Record(timestamp=NOW, value=b"v")], **fields))


def verdict(rule: BatchRules, batch: memoryview) -> Any:
    """The batch that is appended, or the error code."""
    try:
        header = check_batch(batch)
        try:
            placed, header = rule.validated(batch, header, NOW)
        except MustWait as wait:
            wait.examination.run(lambda: None)
            placed, header = wait.examination.outcome()
    except EXPECTED as error:
        return fault_of(error, where="here").code
    assert header == check_batch(placed)
    return placed


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_sound_batch_is_appended_as_it_is(codec: int) -> None:
    batch = made(Record(timestamp=NOW, value=b"v" * 100), compression=codec)
    assert verdict(rules(**STRICT), batch) is batch


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_lie_is_refused_by_strict_and_believed_by_relaxed(codec: int) -> None:
    batch = made(*[Record(timestamp=NOW, value=b"v")] * 3, compression=codec)
    struct.pack_into(">i", batch, 57, 2)  # the count
    struct.pack_into(">i", batch, 23, 1)  # the last offset delta
    write_crc(batch)
    assert verdict(rules(**STRICT), batch) == ErrorCode.INVALID_RECORD
    assert verdict(rules(), batch) is batch


@pytest.mark.parametrize("said", [NOW + 2 * HOUR_MS, NOW - HOUR_MS, -1])
def test_the_largest_timestamp_is_put_right(said: int) -> None:
    batch = made(Record(timestamp=NOW - 5), Record(timestamp=NOW), Record(timestamp=NOW - 9))
    struct.pack_into(">q", batch, 35, said)
    write_crc(batch)
    placed = verdict(rules(**STRICT), batch)
    assert read_header(placed).max_timestamp == NOW
    if said > NOW:  # suspicious enough for relaxed
        struct.pack_into(">q", batch, 35, said)
        write_crc(batch)
        assert read_header(verdict(rules(), batch)).max_timestamp == NOW


def test_a_record_from_the_future_is_found_behind_an_honest_looking_header() -> None:
    batch = made(Record(timestamp=NOW), Record(timestamp=NOW + 2 * HOUR_MS))
    struct.pack_into(">q", batch, 35, NOW)
    write_crc(batch)
    with pytest.raises(EXPECTED) as caught:
        rules(**STRICT).validated(batch, check_batch(batch), NOW)
    fault = fault_of(caught.value, where="here")
    assert (fault.code, fault.record_indexes) == (ErrorCode.INVALID_TIMESTAMP, [1])
    assert verdict(rules(), batch) is batch


def test_what_the_broker_stamps_may_carry_any_time() -> None:
    batch = made(Record(timestamp=NOW + 2 * HOUR_MS))
    placed = verdict(rules(**STRICT, message_timestamp_type="LogAppendTime"), batch)
    assert [record.timestamp for record in iter_records(placed)] == [NOW]


def test_only_the_broker_stamps() -> None:
    for type_ in ("CreateTime", "LogAppendTime"):
        batch = made(timestamp_type=1)
        assert verdict(rules(message_timestamp_type=type_), batch) == ErrorCode.INVALID_TIMESTAMP


def test_another_codec_keeps_the_records_and_their_truth() -> None:
    batch = made(*[Record(timestamp=NOW, key=b"k", value=b"v" * 50)] * 2000, compression=LZ4)
    before = list(iter_records(batch))
    placed = verdict(rules(compression_type="zstd", cleanup_policy="compact"), batch)
    assert read_header(placed).compression == ZSTD
    assert list(iter_records(placed)) == before


# -- bounds -------------------------------------------------------------------------------------------------------


def bomb(codec: int, size: int) -> memoryview:
    return made(Record(timestamp=NOW, value=bytes(size)), compression=codec)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_refused_when_it_passes_the_limit(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "EXPANDED_BYTES_MIN", 1 << 20)
    rule = rules(**STRICT, max_message_bytes="200000")
    limit = rule.expanded_bytes_max
    assert limit == 64 * 200_000
    batch = bomb(codec, limit + 1)
    if len(batch) < 200_000:
        assert verdict(rule, batch) == ErrorCode.MESSAGE_TOO_LARGE
    assert verdict(rule, bomb(codec, 2 << 20)) is not ErrorCode.MESSAGE_TOO_LARGE


def test_the_limit_grows_with_max_message_bytes_up_to_a_point() -> None:
    assert expanded_bytes_max(1) == 16 << 20
    assert expanded_bytes_max(1 << 20) == 64 << 20
    assert expanded_bytes_max(1 << 30) == 256 << 20


def test_more_records_than_can_be_read_in_a_while_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "RECORDS_MAX", 2000)
    assert verdict(rules(**STRICT), made(*[Record(timestamp=NOW)] * 2001)) == ErrorCode.MESSAGE_TOO_LARGE
    batch = made(*[Record(timestamp=NOW)] * 2000)
    assert verdict(rules(**STRICT), batch) is batch


@pytest.mark.parametrize(
    ("batch", "waits"),
    [
        (made(*[Record(timestamp=NOW)] * 1000), False),
        (made(*[Record(timestamp=NOW)] * 1001), True),
        (bomb(0, 500_000), False),
        (bomb(ZSTD, 500_000), False),
        (bomb(ZSTD, 2_000_000), True),
    ],
    ids=["1,000 records", "1,001 records", "large", "small when compressed", "very small when compressed"],
)
def test_what_takes_long_waits_for_a_thread(batch: memoryview, waits: bool) -> None:
    header = check_batch(batch)
    try:
        Examination(rules(**STRICT), batch, header, NOW).at_once()
        waited = False
    except MustWait:
        waited = True
    assert waited == waits


def test_a_thread_can_be_stopped_between_steps() -> None:
    batch = made(*[Record(timestamp=NOW)] * 5000)
    one = Examination(rules(**STRICT), batch, check_batch(batch), NOW)
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("stopped")

    one.run(stop)
    assert calls == 1
    with pytest.raises(RuntimeError, match="stopped"):
        one.outcome()


# -- at once and on a thread: one verdict ---------------------------------------------------------------------------

records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.sampled_from([NOW, NOW + 1, NOW + 2 * HOUR_MS, -1]),
    key=st.sampled_from([None, b"", b"k"]),
    value=st.one_of(st.none(), st.binary(max_size=40)),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
)


@given(
    st.lists(records, min_size=1, max_size=12),
    st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]),
    st.lists(st.tuples(st.integers(61, 400), st.integers(0, 255)), max_size=2),
    st.sampled_from(["delete", "compact"]),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
)
def test_at_once_and_on_a_thread_the_verdict_is_the_same(
    given_records: list[Record], codec: int, damage: list[tuple[int, int]], policy: str, stamp: str
) -> None:
    batch = build_batch(given_records, compression=codec)
    for at, byte in damage:
        if at < len(batch):
            batch[at] = byte
    write_crc(batch)
    rule = rules(**STRICT, cleanup_policy=policy, message_timestamp_type=stamp)
    outcomes = []
    for at_once in (True, False):
        view = memoryview(bytearray(batch))
        one = Examination(rule, view, check_batch(view), NOW)
        try:
            if not at_once:
                one.run(lambda: None)
            placed, _ = one.at_once() if at_once else one.outcome()
            outcomes.append(bytes(placed))
        except EXPECTED as error:
            outcomes.append(fault_of(error, where="here"))  # type: ignore[arg-type]
    assert outcomes[0] == outcomes[1]
