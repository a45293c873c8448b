import pytest

from tidemark.pipeline.source.walking import AbortedTransactions, Walk, walk
from tidemark.protocol.records import CorruptBatch, EndTransaction, Record, build_batch, build_end_transaction


def batch(base: int, count: int = 2, *, producer: int = -1, transactional: bool = False) -> bytes:
    records = [Record(timestamp=1, value=b"v%d" % number) for number in range(count)]
    fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0} if producer >= 0 else {}
    return bytes(build_batch(records, base_offset=base, transactional=transactional, **fields))  # type: ignore[arg-type]


def marker(base: int, *, producer: int, commit: bool) -> bytes:
    ended = EndTransaction(producer_id=producer, producer_epoch=0, commit=commit, coordinator_epoch=0)
    return bytes(build_end_transaction(ended, timestamp=1, base_offset=base))


def walked(log: bytes, *, first: int = 0, end: int = 100, aborted: list[tuple[int, int]] | None = None) -> Walk:
    return walk(memoryview(log), first=first, end=end, aborted=AbortedTransactions(aborted or []))


def bases(seen: Walk) -> list[int]:
    return [header.base_offset for header, _ in seen.batches]


def test_only_batches_that_touch_the_range_are_chosen() -> None:
    log = batch(0) + batch(2) + batch(4) + batch(6)
    seen = walked(log, first=3, end=5)
    assert (bases(seen), seen.at_end, seen.next_offset) == ([2, 4], True, 6)


def test_a_gap_at_the_end_of_the_range_ends_it() -> None:
    seen = walked(batch(0) + batch(50), end=20)
    assert (bases(seen), seen.at_end) == ([0], True)


def test_a_torn_tail_is_left_for_the_next_look() -> None:
    whole, torn = batch(0), batch(2)[:-1]
    seen = walked(whole + torn)
    assert (bases(seen), seen.consumed, seen.next_offset, seen.at_end) == ([0], len(whole), 2, False)
    assert walked(torn[:30]).consumed == 0


def test_damage_inside_the_range_is_an_error() -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        walked(bytes(damaged) + batch(2))
    assert bases(walked(bytes(damaged) + batch(2), first=2)) == [2]  # not looked at, not complained of


def test_control_batches_are_never_shown() -> None:
    log = batch(0, producer=7, transactional=True) + marker(2, producer=7, commit=True) + batch(3)
    assert bases(walked(log)) == [0, 3]


def test_an_aborted_producer_is_hidden_until_its_marker() -> None:
    log = (
        batch(0, producer=7, transactional=True)
        + batch(2, producer=8, transactional=True)
        + batch(4, producer=7, transactional=True)
        + marker(6, producer=7, commit=False)
        + batch(7, producer=7, transactional=True)
        + marker(9, producer=7, commit=True)
    )
    assert bases(walked(log)) == [0, 2, 4, 7]
    assert bases(walked(log, aborted=[(7, 0)])) == [2, 7]


def test_a_transaction_that_began_before_the_range_is_hidden_in_it() -> None:
    log = batch(4, producer=7, transactional=True) + marker(6, producer=7, commit=False) + batch(7, producer=7)
    assert bases(walked(log, first=5, aborted=[(7, 0)])) == [7]
