from __future__ import annotations

import threading

import pytest

from tidemark.protocol.records import EndTransaction, build_end_transaction
from tidemark.storage import Files, LogConfig

T0 = 1_700_000_000_000


class Recording(Files):
    """Notes what was synced, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def fdatasync(self, fd: int) -> None:
        import os

        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    def sync_directory(self, path: str) -> None:
        import os

        self.synced.append(os.path.basename(path) + "/")


@pytest.fixture
def files():
    return Recording()


@pytest.fixture
def log(open_log, files):
    return open_log(files=files, config=LogConfig(segment_bytes=1000))


def test_the_first_flush_syncs_the_directories_too(log, files, make_batch, append, tmp_path):
    append(log, make_batch(1))
    log.flush()
    assert files.synced == [
        f"{0:020d}.log",
        "leader-epoch-checkpoint",
        "topic-0/",
        tmp_path.name + "/",
    ]
    assert log.recovery_point == 1


def test_later_flushes_sync_one_file(log, files, make_batch, append):
    append(log, make_batch(1))
    log.flush()
    files.synced.clear()
    append(log, make_batch(1))
    log.flush()
    assert files.synced == [f"{0:020d}.log"]


def test_a_flush_after_rolls_syncs_every_segment_that_was_not(log, files, make_batch, append):
    for _ in range(3):
        append(log, make_batch(1, size=700))
    log.flush()
    assert [name for name in files.synced if name.endswith(".log")] == [f"{base:020d}.log" for base in range(3)]
    assert {f"{0:020d}.index", f"{1:020d}.timeindex", f"{2:020d}.snapshot", "topic-0/"} <= set(files.synced)
    files.synced.clear()
    append(log, make_batch(1, size=10))
    log.flush()
    assert files.synced == [f"{2:020d}.log"]


def test_appends_go_on_while_a_flush_runs_on_another_thread(log, make_batch, append):
    append(log, make_batch(1))
    flush = log.begin_flush()
    append(log, make_batch(1))
    thread = threading.Thread(target=flush)
    thread.start()
    thread.join()
    log.finish_flush(flush)
    assert (flush.up_to, log.recovery_point, log.end_offset) == (1, 1, 2)


def test_a_flush_that_a_truncation_overtook_moves_nothing(log, make_batch, append):
    append(log, make_batch(1))
    append(log, make_batch(1))
    flush = log.begin_flush()
    log.truncate_to(1)
    append(log, make_batch(1))
    flush()
    log.finish_flush(flush)
    assert log.recovery_point == 0


def test_a_segment_deleted_during_a_flush_does_not_disturb_it(log, make_batch, append):
    for _ in range(3):
        append(log, make_batch(1, size=700))
    flush = log.begin_flush()
    log.delete_before(2)
    log.remove_deleted(1 << 60)
    flush()
    log.finish_flush(flush)
    assert log.recovery_point == 3


def test_closing_a_log_that_did_not_change_syncs_nothing(log, files, make_batch, append, open_log):
    append(log, make_batch(1))
    log.close()
    files.synced.clear()
    open_log(files=files, clean=True, recovery_point=1).close()
    assert files.synced == []


def test_a_segment_begun_during_a_flush_is_left_to_the_next(log, files, make_batch, append):
    append(log, make_batch(1, size=700))
    flush = log.begin_flush()
    flush()
    append(log, make_batch(1, size=700), leader_epoch=5)
    log.finish_flush(flush)
    assert log.recovery_point == 1
    assert log.has_unflushed_segments
    files.synced.clear()
    log.flush()
    assert {f"{0:020d}.log", f"{1:020d}.log", "leader-epoch-checkpoint", "topic-0/"} <= set(files.synced)
    assert not log.has_unflushed_segments


def test_a_clean_close_syncs_the_snapshot_that_the_next_start_begins_with(log, files, make_batch, append):
    append(log, make_batch(1))
    log.close()
    assert f"{1:020d}.snapshot" in files.synced


def test_a_clean_close_syncs_the_indexes_even_if_every_record_was_synced(log, files, make_batch, append):
    """Seed 61083 of five simulated nodes: the power failed after a clean stop, and the next start believed an index of
    zeros."""
    append(log, make_batch(1))
    log.flush()
    files.synced.clear()
    log.close()
    assert {f"{0:020d}.index", f"{0:020d}.timeindex"} <= set(files.synced)


def test_the_name_of_a_new_index_of_aborted_transactions_is_synced_with_its_first_entry(log, files, make_batch, append):
    """Seed 61110 of five simulated nodes: after a clean stop and a loss of power the file was gone, and with it what
    readers of committed records must skip."""
    append(log, make_batch(1))
    log.flush()
    for number in range(2):
        append(log, make_batch(1, producer_id=7, sequence=number, transactional=True))
        append(log, build_end_transaction(EndTransaction(7, 0, commit=False, coordinator_epoch=0), timestamp=T0))
        files.synced.clear()
        log.flush()
        assert ("topic-0/" in files.synced) == (number == 0)
        assert f"{0:020d}.txnindex" in files.synced
