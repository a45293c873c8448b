"""Producer states kept in memory, so that a truncation need not read a whole segment again."""

from __future__ import annotations

from itertools import pairwise

from tidemark.protocol.records import EndTransaction, build_end_transaction
from tidemark.storage import LogConfig
from tidemark.storage.producers import Producers, ProducerState
from tidemark.storage.remembered import RememberedStates

T0 = 1_700_000_000_000


def producers(count: int) -> Producers:
    made = Producers()
    made._states = {each: ProducerState(each, epoch=0) for each in range(count)}
    return made


def test_recent_copies_are_close_together_and_older_ones_further_apart():
    remembered = RememberedStates()
    for offset in range(100):
        remembered.add(offset, producers(1))
    assert len(remembered) <= 8
    offsets = [offset for offset, _ in remembered._copies]
    gaps = [later - earlier for earlier, later in pairwise(offsets)]
    assert offsets[0] == 0
    assert offsets[-4:] == [96, 97, 98, 99]
    assert gaps == sorted(gaps, reverse=True)


def test_what_lies_beyond_a_truncation_is_dropped():
    remembered = RememberedStates()
    for offset in (10, 20, 30):
        remembered.add(offset, producers(1))
    assert remembered.newest(up_to=25) is not None
    assert len(remembered) == 2
    assert remembered.newest(up_to=5) is None


def test_very_many_producers_are_not_copied():
    remembered = RememberedStates()
    remembered.add(1, producers(2000))
    assert len(remembered) == 0


def test_a_truncation_reads_little_and_finds_the_producers_as_they_were(open_log, make_batch, append, monkeypatch):
    log = open_log(config=LogConfig(segment_bytes=64 << 20))
    states = {}
    for each in range(600):
        states[log.end_offset] = {state.producer_id: state.to_snapshot() for state in log.producers()}
        producer = each % 3
        append(log, make_batch(1, size=10_000, producer_id=producer, sequence=each // 3, transactional=producer == 2))
        if producer == 2 and each % 2:
            states[log.end_offset] = {state.producer_id: state.to_snapshot() for state in log.producers()}
            marker = EndTransaction(2, 0, commit=True, coordinator_epoch=1)
            append(log, build_end_transaction(marker, timestamp=T0))
    read = []
    pread = log.files.pread

    def counted(fd: int, length: int, position: int) -> bytes:
        read.append(position)
        return bytes(pread(fd, length, position))

    monkeypatch.setattr(type(log.files), "pread", staticmethod(counted))
    for back in (1, 10, 150):
        offset = log.end_offset - back
        read.clear()
        log.truncate_to(offset)
        assert len(read) < 250, "a batch of 10 kB is one read; the whole segment has hundreds"
        assert {state.producer_id: state.to_snapshot() for state in log.producers()} == states[offset]
    log.truncate_to(3)
    assert {state.producer_id: state.to_snapshot() for state in log.producers()} == states[3]


def test_a_restored_state_is_not_the_copy_itself(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=64 << 20))
    for each in range(300):
        append(log, make_batch(1, size=10_000, producer_id=1, sequence=each))
    for _ in range(2):
        log.truncate_to(250)
        state = log.producer(1)
        assert state is not None
        assert state.next_sequence == 250
        for each in range(250, 280):
            append(log, make_batch(1, size=100, producer_id=1, sequence=each))
