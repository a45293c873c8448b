from __future__ import annotations

import os

import pytest

from tidemark.protocol.records import CorruptBatch, EndTransaction, build_end_transaction, iter_batches, read_header
from tidemark.storage import (
    BatchTooLarge,
    LogConfig,
    LogOffline,
    NonContiguousAppend,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    TopicIdMismatch,
    rolling,
)

T0 = 1_700_000_000_000


def slice_bytes(part):
    return os.pread(part.file.fileno(), part.length, part.position)


def test_a_batch_gets_its_offsets_and_epoch_in_place(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(3))
    batch = make_batch(2)
    done = append(log, batch, leader_epoch=7)
    assert done == (3, 4, -1, False)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert log.end_offset == 5
    assert log.latest_epoch == 7


def test_what_was_written_is_read_back(open_log, make_batch, append, read_batches):
    log = open_log()
    batches = [make_batch(number % 4 + 1, size=number) for number in range(100)]
    for batch in batches:
        append(log, batch)
    assert log.segment_count > 3
    for limit in (1, 100, 500, 3000, 1 << 20):
        assert [data for _, data in read_batches(log, limit_bytes=limit)] == [bytes(batch) for batch in batches]


def test_reading_at_any_offset_begins_with_the_batch_that_holds_it(open_log, make_batch, append, read_batches):
    log = open_log()
    for _ in range(60):
        append(log, make_batch(3, size=60))
    for offset in range(log.end_offset):
        assert next(iter(read_batches(log, offset=offset)))[0].base_offset == offset // 3 * 3


def test_reading_at_the_end_is_empty_and_beyond_it_an_error(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(3))
    assert log.read(offset=3, limit_bytes=100) == []
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(offset=4, limit_bytes=100)
    assert (caught.value.offset, caught.value.start, caught.value.end) == (4, 0, 3)


def test_reading_before_the_start_is_an_error(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(3))
    log.delete_before(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(offset=1, limit_bytes=100)
    assert log.read(offset=2, limit_bytes=100)[0].position == 0


def test_nothing_at_or_past_the_high_watermark_is_returned(open_log, make_batch, append):
    log = open_log()
    bounds = [append(log, make_batch(2, size=60)).last_offset + 1 for _ in range(80)]
    for up_to in [0, *bounds]:
        offset = 0
        while offset < up_to:
            (part,) = log.read(offset=offset, limit_bytes=1 << 20, up_to=up_to)
            offset = max(header.next_offset for header, _ in iter_batches(slice_bytes(part)))
        assert offset == up_to
        assert log.read(offset=up_to, limit_bytes=1 << 20, up_to=up_to) == []
    assert log.read(offset=10, limit_bytes=100, up_to=4) == []


def test_a_first_batch_over_the_limit_is_returned_whole_if_asked_for(open_log, make_batch, append):
    log = open_log()
    large, small = make_batch(1, size=1000), make_batch(1)
    append(log, large)
    append(log, small)
    (part,) = log.read(offset=0, limit_bytes=10)
    assert slice_bytes(part) == bytes(large)
    assert log.read(offset=0, limit_bytes=10, at_least_one=False) == []
    (part,) = log.read(offset=0, limit_bytes=len(large), at_least_one=False)
    assert part.length == len(large)


def test_slices_end_at_batch_boundaries(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=1 << 20, index_interval_bytes=500))
    for _ in range(200):
        append(log, make_batch(1, size=100))
    for offset in range(0, 150, 7):
        for limit in (200, 1000, 5000):
            (part,) = log.read(offset=offset, limit_bytes=limit)
            assert 0 < part.length <= limit
            assert sum(header.size for header, _ in iter_batches(slice_bytes(part))) == part.length


def test_an_offset_in_a_gap_leads_to_the_next_batch_even_in_the_next_segment(open_log, make_batch, read_batches):
    log = open_log()
    for offset in (0, 10, 20):
        log.append_replicated(make_batch(2, base_offset=offset, leader_epoch=0))
        log.roll()
    assert [header.base_offset for header, _ in read_batches(log, offset=5)] == [10, 20]
    assert [header.base_offset for header, _ in read_batches(log, offset=12)] == [20]


def test_a_slice_outlives_its_segment(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=4000, file_delete_delay_ms=0))
    first = make_batch(1, size=2000)
    append(log, first)
    append(log, make_batch(1, size=3000))
    (part,) = log.read(offset=0, limit_bytes=5000)
    log.delete_before(1)
    log.remove_deleted(T0)
    log.close()
    assert slice_bytes(part) == bytes(first)


def test_segments_roll_by_size(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=1000))
    sizes = []
    for _ in range(10):
        append(log, make_batch(1, size=300))
        sizes.append(log.segment_count)
    assert sizes == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_a_batch_larger_than_a_segment_is_refused(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=1000))
    with pytest.raises(BatchTooLarge):
        append(log, make_batch(1, size=2000))
    assert log.end_offset == 0


def test_segments_roll_by_the_time_between_batches(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_ms=1000))
    for timestamp in (T0, T0 + 1000, T0 + 1001, T0 + 500, T0 + 2002):
        append(log, make_batch(1, timestamp=timestamp))
    assert log.segment_count == 3


def test_segments_without_timestamps_roll_by_the_clock(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_ms=1000))
    for now in (T0, T0 + 1000, T0 + 1001):
        append(log, make_batch(1, timestamp=-1), now_ms=now)
    assert log.segment_count == 2


def test_jitter_is_taken_off_the_time_to_roll(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_ms=1000, segment_jitter_ms=400), chance=lambda: 0.5)
    for timestamp in (T0, T0 + 800, T0 + 801):
        append(log, make_batch(1, timestamp=timestamp))
    assert log.segment_count == 2


def test_a_full_index_rolls_the_segment(open_log, make_batch, append):
    log = open_log(config=LogConfig(index_interval_bytes=0, segment_index_bytes=48))
    for _ in range(12):
        append(log, make_batch(1))
    assert log.segment_count == 3


def test_a_new_configuration_takes_effect_at_once(open_log, make_batch, append):
    log = open_log(config=LogConfig())
    append(log, make_batch(1, size=300))
    log.config = LogConfig(segment_bytes=500)
    append(log, make_batch(1, size=300))
    assert log.segment_count == 2


def test_rolling_an_empty_segment_does_nothing(open_log):
    log = open_log()
    log.roll()
    log.roll()
    assert log.segment_count == 1


def test_the_position_of_offsets_beyond_int32_is_found(open_log, make_batch, read_batches):
    log = open_log()
    leaps = [0, 10, (1 << 31) - 3, 1 << 31, 1 << 33, (1 << 33) + 2]
    for offset in leaps:
        log.append_replicated(make_batch(2, base_offset=offset, leader_epoch=0))
    assert [header.base_offset for header, _ in read_batches(log)] == leaps
    log.close()
    log = open_log(clean=False)
    assert [header.base_offset for header, _ in read_batches(log)] == leaps


def test_a_follower_takes_many_batches_over_many_segments(open_log, make_batch, read_batches):
    leader = [make_batch(2, size=100, base_offset=2 * number, leader_epoch=number // 20) for number in range(100)]
    log = open_log()
    data = b"".join(leader)
    assert log.append_replicated(data + bytes(leader[0])[:70]) == 200
    assert [bytes(each) for _, each in read_batches(log)] == [bytes(batch) for batch in leader]
    assert log.epoch_end_offset(2) == (2, 120)
    assert log.segment_count > 2


def test_a_follower_refuses_what_does_not_follow(open_log, make_batch):
    log = open_log()
    log.append_replicated(make_batch(2, base_offset=5, leader_epoch=0))
    with pytest.raises(NonContiguousAppend):
        log.append_replicated(make_batch(2, base_offset=6, leader_epoch=0))
    with pytest.raises(NonContiguousAppend):
        log.append_replicated(make_batch(2, base_offset=9) + make_batch(2, base_offset=7))
    assert log.end_offset == 7


def test_a_follower_refuses_damaged_batches_and_writes_none_of_them(open_log, make_batch):
    log = open_log()
    damaged = make_batch(2, base_offset=2)
    damaged[70] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_replicated(make_batch(2, base_offset=0) + damaged)
    assert log.end_offset == 0


def test_a_duplicate_is_answered_with_its_first_offsets_and_not_written(open_log, make_batch, append):
    log = open_log()
    first = append(log, make_batch(3, producer_id=5, sequence=0))
    append(log, make_batch(1, producer_id=5, sequence=3))
    size = log.size_bytes
    again = append(log, make_batch(3, producer_id=5, sequence=0))
    assert again == (first.base_offset, first.last_offset, -1, True)
    assert (log.size_bytes, log.end_offset) == (size, 4)


def test_a_gap_in_a_producers_sequence_is_refused_and_not_written(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(1, producer_id=5, sequence=0))
    with pytest.raises(OutOfOrderSequence):
        append(log, make_batch(1, producer_id=5, sequence=2))
    assert log.end_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_after_a_restart(open_log, make_batch, append, clean):
    log = open_log()
    for sequence in range(60):
        append(log, make_batch(1, size=100, producer_id=5, sequence=sequence))
    assert log.segment_count > 1
    log.close(clean=clean)
    log = open_log(clean=clean)
    assert append(log, make_batch(1, producer_id=5, sequence=59)).duplicate
    with pytest.raises(OutOfOrderSequence):
        append(log, make_batch(1, producer_id=5, sequence=61))
    assert append(log, make_batch(1, producer_id=5, sequence=60)).base_offset == 60


def test_idle_producers_are_forgotten(open_log, make_batch, append):
    log = open_log(config=LogConfig(producer_id_expiration_ms=1000))
    append(log, make_batch(1, producer_id=5, sequence=0))
    log.expire_producers(T0 + 999)
    assert [state.producer_id for state in log.producers()] == [5]
    log.expire_producers(T0 + 1000)
    assert log.producers() == []


def test_log_append_time_is_reported(open_log, make_batch, append):
    log = open_log()
    assert append(log, make_batch(1, timestamp=T0 + 5, timestamp_type=1)).log_append_time == T0 + 5


def marker(producer_id, *, commit, coordinator_epoch=0, base_offset=0):
    end = EndTransaction(producer_id, 0, commit=commit, coordinator_epoch=coordinator_epoch)
    return build_end_transaction(end, timestamp=T0, base_offset=base_offset)


def test_transactions_hold_back_the_stable_offset_and_aborts_are_indexed(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(2, producer_id=1, sequence=0, transactional=True))
    append(log, make_batch(2, producer_id=2, sequence=0, transactional=True))
    assert log.last_stable_offset(4) == 0
    append(log, marker(1, commit=False))
    assert log.last_stable_offset(5) == 2
    append(log, marker(2, commit=True))
    assert log.last_stable_offset(5) == 2
    assert log.last_stable_offset(6) == 6
    assert [entry[:3] for entry in log.aborted_transactions(from_offset=0, up_to=6)] == [(1, 0, 4)]
    assert log.aborted_transactions(from_offset=5, up_to=6) == []


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_survive_a_restart(open_log, make_batch, append, clean):
    log = open_log()
    append(log, make_batch(2, producer_id=1, sequence=0, transactional=True))
    log.roll()
    append(log, make_batch(2, producer_id=2, sequence=0, transactional=True))
    append(log, marker(2, commit=False))
    log.close(clean=clean)
    log = open_log(clean=clean)
    assert log.last_stable_offset(5) == 0
    append(log, marker(1, commit=False))
    assert [entry.first_offset for entry in log.aborted_transactions(from_offset=0, up_to=6)] == [2, 0]


def test_a_follower_learns_of_transactions_from_the_batches(open_log, make_batch):
    log = open_log()
    log.append_replicated(make_batch(2, producer_id=1, sequence=0, transactional=True))
    assert log.last_stable_offset(2) == 0
    log.append_replicated(marker(1, commit=False, base_offset=2))
    assert log.last_stable_offset(3) == 3
    assert len(log.aborted_transactions(from_offset=0, up_to=3)) == 1


def test_a_replaced_coordinators_marker_is_refused(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(2, producer_id=1, sequence=0, transactional=True))
    append(log, marker(1, commit=True, coordinator_epoch=3))
    with pytest.raises(StaleCoordinatorEpoch):
        append(log, marker(1, commit=True, coordinator_epoch=2))
    assert log.end_offset == 3


def test_truncation_takes_aborts_and_producers_along(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(2, producer_id=1, sequence=0, transactional=True))
    append(log, marker(1, commit=False))
    append(log, make_batch(2, producer_id=2, sequence=0))
    log.truncate_to(2)
    assert log.last_stable_offset(2) == 0
    assert log.aborted_transactions(from_offset=0, up_to=9) == []
    assert [state.producer_id for state in log.producers()] == [1]


def test_truncation_drops_whole_batches_segments_and_epochs(open_log, make_batch, append, read_batches, tmp_path):
    log = open_log()
    for number in range(90):
        append(log, make_batch(3, size=60), leader_epoch=number // 30)
    assert log.truncate_to(100) is True
    assert (log.end_offset, log.latest_epoch) == (99, 1)
    assert [header.base_offset for header, _ in read_batches(log)] == list(range(0, 99, 3))
    assert log.truncate_to(99) is False
    append(log, make_batch(1), leader_epoch=5)
    assert log.epoch_end_offset(4) == (1, 99)
    log.close(clean=False)
    assert open_log(clean=False).end_offset == 100


def test_truncation_before_the_first_segment_empties_the_log(open_log, make_batch, append):
    log = open_log()
    for _ in range(60):
        append(log, make_batch(3, size=60))
    log.delete_before(100)
    log.truncate_to(5)
    assert (log.start_offset, log.end_offset) == (5, 5)
    assert append(log, make_batch(1)).base_offset == 5


def test_emptying_a_log_lets_it_start_anywhere(open_log, make_batch, append, read_batches, tmp_path):
    log = open_log()
    for sequence in range(60):
        append(log, make_batch(1, size=100, producer_id=1, sequence=sequence), leader_epoch=2)
    log.truncate_fully_and_start_at(1000)
    assert (log.start_offset, log.end_offset, log.recovery_point, log.size_bytes) == (1000, 1000, 1000, 0)
    assert (log.producers(), log.latest_epoch) == ([], -1)
    append(log, make_batch(2), leader_epoch=3)
    log.close(clean=False)
    log = open_log(clean=False, start_offset=1000)
    assert [header.base_offset for header, _ in read_batches(log)] == [1000]


def test_truncation_tells_whoever_keeps_the_recovery_points(open_log, make_batch, append):
    log = open_log()
    told = []
    log.on_truncated = lambda: told.append(log.recovery_point)
    append(log, make_batch(3))
    append(log, make_batch(3))
    log.flush()
    log.truncate_to(3)
    log.truncate_fully_and_start_at(0)
    assert told == [3, 0]


def test_the_topic_id_is_kept_and_checked(open_log, tmp_path):
    log = open_log(topic_id=b"i" * 16)
    log.close()
    log = open_log()
    assert log.topic_id == b"i" * 16
    log.close()
    with pytest.raises(TopicIdMismatch):
        open_log(topic_id=b"j" * 16)


def test_a_closed_log_serves_nobody(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(1))
    log.close()
    with pytest.raises(LogOffline):
        append(log, make_batch(1))
    with pytest.raises(LogOffline):
        log.read(offset=0, limit_bytes=1)


def test_a_deleted_log_leaves_nothing_behind(open_log, make_batch, append, tmp_path):
    log = open_log()
    append(log, make_batch(1))
    log.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_new_log_may_begin_anywhere(open_log, make_batch, append):
    log = open_log(start_offset=77)
    assert append(log, make_batch(1)).base_offset == 77


def test_old_snapshots_do_not_pile_up(open_log, make_batch, append, tmp_path):
    for _ in range(5):
        log = open_log()
        append(log, make_batch(1, size=100))
        log.close()
    assert len(list((tmp_path / "topic-0").glob("*.snapshot"))) <= 2


def test_an_epoch_without_records_leaves_no_file_and_its_first_record_does(open_log, make_batch, append, tmp_path):
    log = open_log()
    log.start_epoch(5)
    assert log.latest_epoch == 5
    assert not (tmp_path / "topic-0" / "leader-epoch-checkpoint").exists()
    append(log, make_batch(1), leader_epoch=5)
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n5 0\n"
    log.close()
    assert open_log().latest_epoch == 5


def test_a_segment_never_begins_before_the_end_of_the_log(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(3))
    with pytest.raises(AssertionError, match="cannot begin at 2"):
        rolling.roll_to(log, 2)
