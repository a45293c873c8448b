"""After an unclean stop: what is cut off, what is rebuilt, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.protocol.records import EndTransaction, build_end_transaction, read_header
from tidemark.storage import CorruptLog, Log, LogConfig

T0 = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, producer_id_expiration_ms=1 << 60)


@pytest.fixture
def killed(open_log, make_batch, append, tmp_path):
    """A log of three segments whose process was killed, nothing flushed; and the batches in it."""
    log = open_log(config=CONFIG)
    batches = []
    for number in range(60):
        batch = make_batch(3, size=250, timestamp=T0 + number, producer_id=5, sequence=3 * number)
        append(log, batch, leader_epoch=number // 20)
        batches.append(bytes(batch))
    assert log.segment_count == 3
    log.close(clean=False)
    return Killed(tmp_path / "topic-0", batches)


class Killed(tuple[Any, ...]):
    """(path, batches) with a short name, for hypothesis prints its arguments."""

    def __new__(cls, *parts):
        return super().__new__(cls, parts)

    def __repr__(self) -> str:
        return "killed log"


def segment_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def reopen(open_log, **more) -> Log:
    return open_log(config=CONFIG, clean=False, **more)  # type: ignore[no-any-return]


def data_of(read_batches, log: Log) -> list[bytes]:
    return [data for _, data in read_batches(log)]


def test_a_killed_log_has_everything_that_was_written(killed, open_log, read_batches):
    _path, batches = killed
    log = reopen(open_log)
    assert data_of(read_batches, log) == batches
    assert log.recovery_point == 0
    assert log.latest_epoch == 2
    assert log.epoch_end_offset(0) == (0, 60)
    state = log.producers()[0]
    assert (state.last_sequence, state.batches[-1].last_offset) == (179, 179)


@pytest.mark.parametrize(
    "tail",
    [b"\0", b"\0" * 50, b"\0" * 10_000, b"\xff" * 61, b"rubbish" * 2000, bytes(8) + b"\0\0\0\x40"],
    ids=["one byte", "zeros", "pages of zeros", "ones", "text", "half a header"],
)
def test_a_tail_that_is_no_batch_is_cut_off(killed, open_log, read_batches, tail):
    path, batches = killed
    last = segment_files(path)[-1]
    size = last.stat().st_size
    last.write_bytes(last.read_bytes() + tail)
    log = reopen(open_log)
    assert data_of(read_batches, log) == batches
    assert last.stat().st_size == size


def test_half_of_the_last_batch_is_cut_off_at_every_length(killed, open_log, read_batches):
    path, batches = killed
    last = segment_files(path)[-1]
    whole = last.read_bytes()
    for missing in (1, 40, len(batches[-1]) - 61, len(batches[-1]) - 60, len(batches[-1]) - 1):
        last.write_bytes(whole[:-missing])
        log = reopen(open_log)
        assert data_of(read_batches, log) == batches[:-1]
        assert log.producers()[0].last_sequence == 176
        log.close(clean=False)
        last.write_bytes(whole)


def test_a_flipped_bit_in_the_last_batch_is_a_torn_tail(killed, open_log, read_batches):
    path, batches = killed
    flip(segment_files(path)[-1], -5)
    assert data_of(read_batches, reopen(open_log)) == batches[:-1]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("at", [8, 16, 17, 30, 61, 300])
@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_flipped_bit_with_whole_batches_after_it_is_refused(killed, open_log, segment, at):
    path, _ = killed
    damaged = segment_files(path)[segment]
    flip(damaged, 2 * size_of_first_batch(damaged) + at)
    with pytest.raises(CorruptLog) as caught:
        reopen(open_log)
    assert caught.value.path == str(damaged)
    assert caught.value.position == 2 * size_of_first_batch(damaged)


def size_of_first_batch(path: Path) -> int:
    return read_header(path.read_bytes()).size


def test_a_leader_epoch_that_goes_back_is_damage(killed, open_log):
    """No checksum covers the epoch of a batch."""
    path, batches = killed
    file = segment_files(path)[2]
    data = bytearray(file.read_bytes())
    data[len(batches[0]) * 3 + 15] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptLog, match="leader epoch"):
        reopen(open_log)


def test_a_damaged_last_batch_below_the_recovery_point_is_refused(killed, open_log):
    path, _ = killed
    flip(segment_files(path)[-1], -5)
    with pytest.raises(CorruptLog, match="had been synced"):
        reopen(open_log, recovery_point=180)


def test_nothing_before_the_segment_of_the_recovery_point_is_read(killed, open_log):
    path, _ = killed
    flip(segment_files(path)[0], 500)
    base = int(segment_files(path)[1].stem)
    assert reopen(open_log, recovery_point=base).end_offset == 180


def test_a_page_that_never_reached_the_disk_is_a_torn_tail(killed, open_log, read_batches):
    path, batches = killed
    middle = segment_files(path)[1]
    data = bytearray(middle.read_bytes())
    data[4096:8192] = bytes(4096)
    middle.write_bytes(data)
    log = reopen(open_log)
    found = data_of(read_batches, log)
    assert found == batches[: len(found)]
    assert 0 < len(found) < 40
    assert len(segment_files(path)) == 2


def test_a_segment_that_ends_early_takes_those_after_it_along(killed, open_log, read_batches):
    path, batches = killed
    middle = segment_files(path)[1]
    middle.write_bytes(middle.read_bytes()[:5000])
    log = reopen(open_log)
    found = data_of(read_batches, log)
    assert found == batches[: len(found)]
    assert log.segment_count == 2


def test_a_segment_that_lost_whole_batches_at_its_end_takes_those_after_it_along(killed, open_log, read_batches):
    path, batches = killed
    middle = segment_files(path)[1]
    middle.write_bytes(middle.read_bytes()[: 3 * size_of_first_batch(middle)])
    log = reopen(open_log)
    found = data_of(read_batches, log)
    assert found == batches[: len(found)]
    assert log.segment_count == 2


def test_a_missing_end_below_the_recovery_point_is_refused(killed, open_log):
    path, _ = killed
    first, second = segment_files(path)[:2]
    first.write_bytes(first.read_bytes()[: 3 * size_of_first_batch(first)])
    with pytest.raises(CorruptLog):
        reopen(open_log, recovery_point=int(second.stem) - 1)


def log_with_a_gap(open_log, make_batch, path, config):
    """Two segments: offsets 0 and 1, and 50 and 51 in one that begins at 40."""
    log = open_log(config=config)
    log.append_replicated(make_batch(2, base_offset=0, leader_epoch=0))
    log.roll()
    log.append_replicated(make_batch(2, base_offset=50, leader_epoch=0))
    log.close(clean=False)
    os.rename(path / "topic-0" / f"{2:020d}.log", path / "topic-0" / f"{40:020d}.log")


@pytest.mark.parametrize(("recovery_point", "cleaned_up_to"), [(0, 0), (3, 0), (52, 0), (2, 40)])
def test_gaps_between_segments_of_a_compacted_log_mean_nothing(
    open_log, make_batch, tmp_path, recovery_point, cleaned_up_to
):
    """Where it may have been cleaned: below the recovery point, and below where the cleaner was."""
    config = LogConfig(segment_bytes=20_000, compact=True, delete=False)
    log_with_a_gap(open_log, make_batch, tmp_path, config)
    log = open_log(config=config, clean=False, recovery_point=recovery_point, cleaned_up_to=cleaned_up_to)
    assert log.end_offset == 52


def test_a_gap_in_a_compacted_log_where_nothing_was_cleaned_is_a_lost_end(open_log, make_batch, tmp_path):
    """A follower would never fetch what is missing, and could lead without it."""
    config = LogConfig(segment_bytes=20_000, compact=True, delete=False)
    log_with_a_gap(open_log, make_batch, tmp_path, config)
    assert open_log(config=config, clean=False, recovery_point=2, cleaned_up_to=2).end_offset == 2


def test_overlapping_segments_are_refused(killed, open_log):
    path, _ = killed
    second = segment_files(path)[1]
    second.rename(second.with_name(f"{int(second.stem) - 1:020d}.log"))
    with pytest.raises(CorruptLog):
        reopen(open_log)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"x", b"rubbish!" * 64, b"\0" * 64, b"\0\0\0\1\0\0\0\1" * 2])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_damaged_indexes_are_rebuilt(open_log, make_batch, append, read_batches, tmp_path, suffix, content, clean):
    log = open_log(config=CONFIG)
    batches = [make_batch(3, size=250, timestamp=T0 + 10 * number) for number in range(60)]
    for batch in batches:
        append(log, batch)
    log.close()
    good = {path: path.read_bytes() for path in (tmp_path / "topic-0").glob(f"*.{suffix}")}
    for path in good:
        path.unlink() if content is None else path.write_bytes(content)
    log = open_log(config=CONFIG, clean=clean)
    for offset in (0, 31, 90, 179):
        assert next(iter(read_batches(log, offset=offset)))[0].base_offset == offset // 3 * 3
    assert [log.offset_for_timestamp(T0 + 10 * number)[0] for number in (0, 20, 59)] == [0, 60, 177]
    assert data_of(read_batches, log) == [bytes(batch) for batch in batches]


def test_what_is_fetched_after_a_damaged_time_index_is_written_once(open_log, make_batch, tmp_path):
    """The index was made anew when the batches were in the file already, and not yet noted: that failed, and each
    further attempt wrote them again."""
    log = open_log(config=CONFIG)
    batches = [
        make_batch(3, size=250, base_offset=3 * number, timestamp=T0 + number, leader_epoch=0) for number in range(15)
    ]
    log.append_replicated(b"".join(batches[:5]))
    log.close()
    times = tmp_path / "topic-0" / f"{0:020d}.timeindex"
    times.write_bytes(times.read_bytes()[-12:] * 2)  # the last entry looks well
    log = open_log(config=CONFIG)
    assert log.append_replicated(b"".join(batches[5:])) == 45
    log.close()
    assert segment_files(tmp_path / "topic-0")[0].read_bytes() == b"".join(batches)


@pytest.mark.parametrize("lost", [12, 36])
@pytest.mark.parametrize("zeros", [0, 12, 36])
def test_a_segment_that_was_ended_during_the_last_sync_is_as_young_as_its_last_batch(killed, open_log, lost, zeros):
    """That sync moved the recovery point to where the next segment begins, but did not cover what was written to the
    indexes when the segment was ended. Retention would delete it too early."""
    path, _batches = killed
    third = int(segment_files(path)[2].stem)
    damaged = Path(str(segment_files(path)[1]).replace(".log", ".timeindex"))
    damaged.write_bytes(damaged.read_bytes()[:-lost] + bytes(zeros))
    log = reopen(open_log, recovery_point=third)
    ends = [segment.base_offset for segment in log.segments][1:]
    assert [segment.largest_timestamp() for segment in log.segments][:2] == [
        T0 + end // 3 + 1 for end in ends
    ]  # a batch's last record
    log.close(clean=False)
    again = reopen(open_log, recovery_point=log.end_offset)
    assert [segment.largest_timestamp() for segment in again.segments][1] == T0 + third // 3 + 1


def test_an_index_longer_than_its_log_is_rebuilt(killed, open_log, read_batches):
    path, batches = killed
    reopen(open_log).close()
    last = segment_files(path)[-1]
    last.write_bytes(last.read_bytes()[: 4 * size_of_first_batch(last)])
    log = open_log(config=CONFIG, clean=True)
    assert data_of(read_batches, log) == batches[: len(data_of(read_batches, log))]
    assert log.end_offset == int(last.stem) + 12


@pytest.mark.parametrize("content", [None, b"", b"rubbish"])
def test_producers_are_known_without_a_readable_snapshot(killed, open_log, make_batch, append, content):
    path, _ = killed
    reopen(open_log).close()
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink() if content is None else snapshot.write_bytes(content)
    log = open_log(config=CONFIG, clean=True)
    assert append(log, make_batch(3, producer_id=5, sequence=177)).duplicate
    assert append(log, make_batch(3, producer_id=5, sequence=180)).base_offset == 180


def test_a_damaged_epoch_file_is_refilled_from_the_log(killed, open_log):
    path, _ = killed
    (path / "leader-epoch-checkpoint").write_bytes(b"\0\0\0")
    log = reopen(open_log)
    assert [log.epoch_end_offset(epoch) for epoch in (0, 1, 2)] == [(0, 60), (1, 120), (2, 180)]


def test_the_index_of_aborted_transactions_is_rebuilt(open_log, make_batch, append, tmp_path):
    log = open_log(config=CONFIG)
    append(log, make_batch(2, producer_id=9, sequence=0, transactional=True))
    log.roll()
    marker = build_end_transaction(EndTransaction(9, 0, commit=False, coordinator_epoch=0), timestamp=T0)
    log.append(marker, read_header(marker), leader_epoch=0, now_ms=T0)
    log.close(clean=False)
    before = next((tmp_path / "topic-0").glob("*.txnindex")).read_bytes()
    next((tmp_path / "topic-0").glob("*.txnindex")).write_bytes(b"")
    log = reopen(open_log)
    assert log.aborted_transactions(from_offset=0, up_to=9)[0].first_offset == 0
    assert next((tmp_path / "topic-0").glob("*.txnindex")).read_bytes() == before


def test_leftovers_of_deletions_and_cleanings_are_removed(killed, open_log, read_batches):
    path, batches = killed
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.index.cleaned", "x.tmp"):
        (path / name).write_bytes(b"old")
    (path / "00000000000000000999.index").write_bytes(b"orphan")
    log = reopen(open_log)
    assert data_of(read_batches, log) == batches
    assert not [name for name in os.listdir(path) if name.endswith((".deleted", ".cleaned", ".tmp")) or "999" in name]


def test_an_interrupted_swap_is_completed(killed, open_log):
    path, _batches = killed
    first, second, third = segment_files(path)
    # A cleaner has merged the first two segments into one, and was killed before the old ones were removed.
    (path / (first.name + ".swap")).write_bytes(first.read_bytes() + second.read_bytes())
    for suffix in (".index", ".timeindex"):
        (path / (first.stem + suffix + ".swap")).write_bytes(b"")
    log = reopen(open_log, recovery_point=int(third.stem))
    assert log.segment_count == 2
    assert log.end_offset == 180


def test_a_swap_whose_cleaning_was_not_finished_is_undone(killed, open_log, read_batches):
    path, batches = killed
    first = segment_files(path)[0]
    (path / (first.name + ".swap")).write_bytes(b"half")
    (path / (first.name + ".cleaned")).write_bytes(b"half")
    log = reopen(open_log)
    assert data_of(read_batches, log) == batches


def test_empty_segment_files_are_tolerated(killed, open_log, read_batches):
    path, batches = killed
    (path / f"{180:020d}.log").write_bytes(b"")
    log = reopen(open_log)
    assert data_of(read_batches, log) == batches
    assert (log.end_offset, log.segment_count) == (180, 4)


def test_a_log_that_ends_before_its_start_begins_anew(killed, open_log, make_batch, append):
    log = reopen(open_log, start_offset=500)
    assert (log.start_offset, log.end_offset, log.segment_count) == (500, 500, 1)
    assert append(log, make_batch(1)).base_offset == 500


def test_a_batch_larger_than_the_scan_window_is_checked_too(open_log, make_batch, append, read_batches, tmp_path):
    config = LogConfig()
    log = open_log(config=config)
    large = make_batch(1, size=3_000_000)
    append(log, large)
    append(log, make_batch(1))
    log.close(clean=False)
    log = open_log(config=config, clean=False)
    assert data_of(read_batches, log)[0] == bytes(large)
    log.close(clean=False)
    flip(next((tmp_path / "topic-0").glob("*.log")), 2_500_000)
    with pytest.raises(CorruptLog, match="CRC"):
        open_log(config=config, clean=False)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_byte_is_never_served(killed, read_batches, seed, tmp_path_factory):
    """Wherever a bit flips: the log is refused, or what it serves is a prefix of what was written."""
    path, batches = killed
    random = Random(seed)
    copy = tmp_path_factory.mktemp("flip") / "topic-0"
    shutil.copytree(path, copy)
    victim = random.choice([each for each in sorted(copy.iterdir()) if each.stat().st_size])
    data = bytearray(victim.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    victim.write_bytes(data)
    try:
        log = Log.open(str(copy), config=CONFIG, clean=False, now_ms=lambda: T0)
    except CorruptLog:
        assert victim.suffix == ".log"
        return
    found = data_of(read_batches, log)
    log.close(clean=False)
    shutil.rmtree(copy.parent)
    # Base offset and leader epoch lie outside the CRC. A flip there that still makes sense cannot be seen.
    assert strip(found) == strip(batches[: len(found)])
    assert len(found) >= len(batches) - 1 or victim.suffix != ".log"


def strip(batches: list[bytes]) -> list[bytes]:
    return [batch[8:12] + batch[16:] for batch in batches]


def test_a_snapshot_that_a_power_cut_tore_does_not_stay(open_log, make_batch, append, tmp_path):
    """`log verify` would call it damage."""
    log = open_log()
    for _ in range(3):
        append(log, make_batch(1, size=3000, producer_id=5))
    log.close(clean=False)
    torn = sorted((tmp_path / "topic-0").glob("*.snapshot"))
    assert len(torn) == 2
    for path in torn:
        path.write_bytes(b"")
    log = open_log(clean=False)
    assert not any(path.read_bytes() == b"" for path in (tmp_path / "topic-0").glob("*.snapshot"))
    assert [each.producer_id for each in log.producers()] == [5]


@pytest.mark.parametrize("sealed", [False, True])
def test_records_whose_deletion_a_kill_undid_are_of_the_epochs_that_they_were(open_log, make_batch, append, sealed):
    """Or a follower that has other records of these epochs would be told that they are the same."""
    log = open_log(config=CONFIG)
    for epoch in (0, 0, 1, 1):
        append(log, make_batch(1), leader_epoch=epoch)
    log.delete_before(3)
    if sealed:
        log.roll()
        log.flush()
    append(log, make_batch(1), leader_epoch=2)  # this writes the file of epochs, without those that are gone
    log.close(clean=False)
    for _ in ("read from the batches", "read from the file"):
        log = open_log(config=CONFIG, clean=False, recovery_point=log.recovery_point)
        assert log.start_offset == 0
        assert log.epochs.entries() == [(0, 0), (1, 2), (2, 4)]
        assert log.epoch_end_offset(0) == (0, 2)
        log.close(clean=False)
    log = open_log(config=CONFIG, clean=False, start_offset=3)
    assert log.epochs.entries() == [(1, 3), (2, 4)]


def test_likewise_if_everything_was_deleted_and_the_first_batch_of_the_next_epoch_was_not_written(
    open_log, make_batch, append
):
    log = open_log(config=CONFIG)
    for epoch in (0, 0, 1, 1):
        append(log, make_batch(1), leader_epoch=epoch)
    log.flush()
    log.delete_before(4)
    log.begin_epoch(2, start=4)  # which an append does before it writes
    log.close(clean=False)
    log = open_log(config=CONFIG, clean=False, recovery_point=log.recovery_point)
    assert (log.start_offset, log.end_offset) == (0, 4)
    assert log.epochs.entries() == [(0, 0), (1, 2)]
