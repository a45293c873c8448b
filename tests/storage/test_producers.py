from __future__ import annotations

import pytest

from tidemark.protocol.records import read_header
from tidemark.storage import producers
from tidemark.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from tidemark.storage.producers import KEYED_PRODUCER_ID_MIN, Producers

LAST_SEQUENCE = (1 << 31) - 1


@pytest.fixture
def header(make_batch):
    def make(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, producer_id: int = 7):
        return read_header(
            make_batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional)
        )

    return make


class Writer:
    """Checks and notes batches, giving offsets as a log would."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.offset = 0

    def write(self, header):
        repeated = self.producers.check(header)
        if repeated is not None:
            return repeated.first_offset, True
        first = self.offset
        self.offset += header.last_offset_delta + 1
        self.producers.appended(header, first_offset=first, last_offset=self.offset - 1)
        return first, False

    def end(self, header, *, commit: bool, coordinator_epoch: int = 0):
        self.offset += 1
        return self.producers.ended(header, offset=self.offset - 1, commit=commit, coordinator_epoch=coordinator_epoch)


@pytest.fixture
def writer():
    return Writer()


def test_batches_in_sequence_are_accepted(writer, header):
    assert [writer.write(header(0, 3)), writer.write(header(3, 2)), writer.write(header(5))] == [
        (0, False),
        (3, False),
        (5, False),
    ]


def test_each_of_the_last_five_batches_is_recognised_when_repeated(writer, header):
    for sequence in range(6):
        writer.write(header(sequence))
    assert [writer.write(header(sequence)) for sequence in range(1, 6)] == [(offset, True) for offset in range(1, 6)]


def test_a_repetition_older_than_five_batches_is_out_of_order(writer, header):
    for sequence in range(6):
        writer.write(header(sequence))
    with pytest.raises(OutOfOrderSequence):
        writer.write(header(0))


def test_a_repetition_of_another_length_is_out_of_order(writer, header):
    writer.write(header(0, 3))
    with pytest.raises(OutOfOrderSequence):
        writer.write(header(0, 2))


def test_a_gap_is_refused_and_changes_nothing(writer, header):
    writer.write(header(0))
    with pytest.raises(OutOfOrderSequence, match="sequence 2, expected 1"):
        writer.write(header(2))
    assert writer.write(header(1)) == (1, False)


def test_an_unknown_producer_may_begin_anywhere(writer, header):
    assert writer.write(header(500)) == (0, False)
    assert writer.write(header(501)) == (1, False)


def test_a_new_epoch_begins_at_zero(writer, header):
    writer.write(header(0))
    with pytest.raises(OutOfOrderSequence, match="begins at 0"):
        writer.write(header(1, epoch=1))
    assert writer.write(header(0, epoch=1)) == (1, False)


def test_an_old_epoch_is_refused_even_for_a_repetition(writer, header):
    writer.write(header(0))
    writer.write(header(0, epoch=1))
    with pytest.raises(StaleProducerEpoch):
        writer.write(header(0))


def test_sequences_wrap_to_zero(writer, header):
    assert writer.write(header(LAST_SEQUENCE - 1, 2)) == (0, False)
    assert writer.write(header(0)) == (2, False)


def test_a_batch_may_span_the_wrap_and_be_repeated(writer, header):
    assert writer.write(header(LAST_SEQUENCE - 1, 4)) == (0, False)
    assert writer.write(header(LAST_SEQUENCE - 1, 4)) == (0, True)
    assert writer.write(header(2)) == (4, False)


def test_an_expired_producer_may_continue_anywhere(writer, header):
    writer.write(header(0))
    timestamp = header(0).max_timestamp
    writer.producers.expire(now_ms=timestamp + 99, idle_ms=100)
    assert len(writer.producers) == 1
    writer.producers.expire(now_ms=timestamp + 100, idle_ms=100)
    assert len(writer.producers) == 0
    assert writer.write(header(9)) == (1, False)


def test_a_producer_with_an_open_transaction_does_not_expire(writer, header):
    writer.write(header(0, transactional=True))
    writer.producers.expire(now_ms=1 << 60, idle_ms=1)
    assert len(writer.producers) == 1


def test_state_survives_a_snapshot(writer, header):
    writer.write(header(0, 3))
    writer.write(header(3, 2))
    writer.write(header(0, transactional=True, producer_id=8))
    again = Writer()
    again.producers.load(writer.producers.to_snapshot())
    again.offset = writer.offset
    assert again.write(header(3, 2)) == (3, True)
    assert again.write(header(5)) == (6, False)
    assert again.producers.last_stable_offset(7) == 5


def test_a_snapshot_remembers_a_batch_that_spans_the_wrap(writer, header):
    writer.write(header(LAST_SEQUENCE, 3))
    again = Writer()
    again.producers.load(writer.producers.to_snapshot())
    assert again.write(header(LAST_SEQUENCE, 3)) == (0, True)
    assert again.write(header(2))[1] is False


def test_ended_transactions_that_are_not_committed_yet_are_remembered_within_a_bound(writer, header, monkeypatch):
    monkeypatch.setattr(producers, "UNREPLICATED_MAX", 6)
    ended, told = [], []
    for number in range(40):
        first, _ = writer.write(header(number, transactional=True))
        writer.end(header(number, transactional=True), commit=True)
        ended.append((first, writer.offset - 1))
        assert writer.producers.unreplicated_count <= 6
        high_watermark = max(0, writer.offset - 12)
        told.append(writer.producers.copy().last_stable_offset(high_watermark))
        exact = min((start for start, marker in ended if marker >= high_watermark), default=high_watermark)
        assert told[-1] <= min(exact, high_watermark)
    assert told[-1] > 0
    assert told == sorted(told)
    assert writer.producers.last_stable_offset(writer.offset) == writer.offset
    assert writer.producers.unreplicated_count == 0


def test_an_open_transaction_holds_back_the_last_stable_offset(writer, header):
    writer.write(header(0))
    writer.write(header(1, 2, transactional=True))
    assert writer.producers.last_stable_offset(3) == 1
    assert writer.producers.first_undecided() == 1


def test_a_decided_transaction_counts_once_its_marker_is_committed(writer, header):
    writer.write(header(0, 2, transactional=True))
    ended = writer.end(header(0), commit=True)
    assert (ended.first_offset, ended.last_offset, ended.aborted, ended.last_stable_offset) == (0, 2, False, 3)
    assert writer.producers.last_stable_offset(2) == 0
    assert writer.producers.last_stable_offset(3) == 3


def test_an_abort_knows_the_next_open_transaction(writer, header):
    writer.write(header(0, transactional=True, producer_id=1))
    writer.write(header(0, transactional=True, producer_id=2))
    ended = writer.end(header(0, producer_id=1), commit=False)
    assert (ended.aborted, ended.last_stable_offset) == (True, 1)


def test_a_marker_without_records_completes_nothing(writer, header):
    assert writer.end(header(0), commit=False) is None
    assert writer.producers.last_stable_offset(5) == 5


def test_after_a_marker_of_a_new_epoch_the_producer_begins_at_zero(writer, header):
    writer.write(header(0, transactional=True))
    writer.end(header(0, epoch=1), commit=False)
    with pytest.raises(OutOfOrderSequence):
        writer.write(header(1, epoch=1))
    assert writer.write(header(0, epoch=1))[1] is False


def test_a_plain_batch_in_an_open_transaction_is_refused(writer, header):
    writer.write(header(0, transactional=True))
    with pytest.raises(InvalidTransactionState):
        writer.write(header(1))


def test_markers_of_old_epochs_and_old_coordinators_are_refused(writer, header):
    writer.write(header(0, epoch=3, transactional=True))
    with pytest.raises(StaleProducerEpoch):
        writer.producers.check_marker(header(0, epoch=2), coordinator_epoch=1)
    writer.end(header(0, epoch=3), commit=True, coordinator_epoch=5)
    with pytest.raises(StaleCoordinatorEpoch):
        writer.producers.check_marker(header(0, epoch=3), coordinator_epoch=4)
    writer.producers.check_marker(header(0, epoch=3), coordinator_epoch=5)


def test_a_coordinators_batch_without_sequence_is_only_fenced_by_epoch(writer, header):
    writer.write(header(-1, epoch=2, transactional=True))
    writer.write(header(-1, epoch=2, transactional=True))
    with pytest.raises(StaleProducerEpoch):
        writer.write(header(-1, epoch=1, transactional=True))


def test_of_producers_that_are_made_of_keys_the_last_ones_are_remembered(writer, header, monkeypatch):
    monkeypatch.setattr(producers, "KEYED_PRODUCERS_MAX", 10)
    first = KEYED_PRODUCER_ID_MIN
    writer.write(header(0, producer_id=7))
    for number in range(30):
        assert writer.write(header(number, producer_id=first + number)) == (number + 1, False)
        saved = Producers()
        saved.load(writer.producers.to_snapshot())
        writer.producers.restore(saved)
    assert len(writer.producers) == 11
    assert writer.write(header(29, producer_id=first + 29)) == (30, True), "it is known"
    assert writer.write(header(19, producer_id=first + 19)) == (31, False), "it was forgotten"
    with pytest.raises(OutOfOrderSequence):
        writer.write(header(5, producer_id=first + 28))
    assert writer.write(header(0, producer_id=7)) == (0, True), "others stay"
    writer.producers.expire(now_ms=1 << 60, idle_ms=1)
    assert len(writer.producers) == 0


def test_of_very_many_producers_those_that_wrote_last_are_remembered(writer, header, monkeypatch):
    """Anybody who may write can make up ids, and what is remembered of each is five times as large as its batch."""
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 20)
    monkeypatch.setattr(producers, "PRODUCERS_LEFT", 15)
    writer.producers = Producers()
    writer.write(header(0, producer_id=900, transactional=True))
    for number in range(200):
        writer.write(header(0, producer_id=number))
        writer.write(header(number, producer_id=901))
        assert len(writer.producers) <= 20
    assert writer.write(header(199, producer_id=901))[1], "it wrote all the time"
    assert writer.write(header(0, producer_id=199))[1], "it is among the last"
    assert not writer.write(header(0, producer_id=100))[1], "it was forgotten"
    with pytest.raises(InvalidTransactionState):
        writer.write(header(1, producer_id=900))  # its transaction is open still
    saved = Producers()
    saved.load(writer.producers.to_snapshot())
    writer.producers = saved
    for number in range(300, 306):
        writer.write(header(0, producer_id=number))
    assert len(writer.producers) <= 20
    assert saved.get(305) is not None


def test_markers_of_very_many_producers_are_forgotten_as_well(writer, header, monkeypatch):
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 20)
    monkeypatch.setattr(producers, "PRODUCERS_LEFT", 15)
    writer.producers = Producers()
    for number in range(200):
        writer.end(header(0, producer_id=number, transactional=True), commit=True)
    assert len(writer.producers) <= 20
    assert writer.producers.get(199) is not None
    assert writer.producers.get(0) is None


def test_open_transactions_stay_however_many_and_are_not_gone_through_each_time(writer, header, monkeypatch):
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 20)
    monkeypatch.setattr(producers, "PRODUCERS_LEFT", 15)
    writer.producers = Producers()
    looks = []
    forget = Producers._forget_oldest

    def noted(self, newest):
        looks.append(newest)
        forget(self, newest)

    monkeypatch.setattr(Producers, "_forget_oldest", noted)
    for number in range(100):
        writer.write(header(0, producer_id=number, transactional=True))
    assert len(writer.producers) == 100
    assert len(looks) <= 100 // 5
