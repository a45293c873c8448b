from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random
from unittest.mock import Mock

import pytest

from tidemark.storage import CorruptLog, DirectoryLocked, Files, LogConfig, LogDirectory, clean_broker_epoch
from tidemark.storage.deletion import PendingDeletions

T0 = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=4000, file_delete_delay_ms=60_000)


def open_all(directory):
    return directory.open_all(lambda topic, partition: CONFIG)


def test_logs_are_found_again_with_their_offsets(open_directory, make_batch, append):
    directory = open_directory()
    for partition in range(3):
        log = directory.open_log("orders", partition, config=CONFIG, topic_id=b"t" * 16)
        for _ in range(partition + 1):
            append(log, make_batch(2))
    directory.logs["orders", 2].delete_before(3)
    directory.close(high_watermarks={("orders", 2): 6})
    directory = open_directory()
    assert directory.was_clean
    assert open_all(directory) == {}
    assert {key: (log.start_offset, log.end_offset, log.recovery_point) for key, log in directory.logs.items()} == {
        ("orders", 0): (0, 2, 2),
        ("orders", 1): (0, 4, 4),
        ("orders", 2): (3, 6, 6),
    }
    assert directory.logs["orders", 0].topic_id == b"t" * 16
    assert directory.high_watermarks == {("orders", 2): 6}


def test_the_files_at_the_top_are_kafkas(open_directory, path, make_batch, append):
    directory = open_directory()
    directory.write_meta_properties({"cluster.id": "c", "node.id": "1"})
    log = directory.open_log("a-b", 0, config=CONFIG)
    append(log, make_batch(2))
    log.delete_before(1)
    directory.close(high_watermarks={("a-b", 0): 2})
    assert (path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na-b 0 2\n"
    assert (path / "log-start-offset-checkpoint").read_text() == "0\n1\na-b 0 1\n"
    assert (path / "replication-offset-checkpoint").read_text() == "0\n1\na-b 0 2\n"
    assert (path / "meta.properties").read_text() == "cluster.id=c\nnode.id=1\nversion=1\n"
    assert (path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": -1}'
    assert open_directory().meta_properties() == {"cluster.id": "c", "node.id": "1", "version": "1"}


def test_the_clean_mark_is_gone_while_the_directory_is_in_use(open_directory, path):
    open_directory().close()
    assert (path / ".kafka_cleanshutdown").exists()
    directory = open_directory()
    assert not (path / ".kafka_cleanshutdown").exists()
    directory.close(clean=False)
    assert not open_directory().was_clean


def test_a_log_that_went_offline_denies_the_clean_mark(open_directory, path, make_batch, append):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.logs["a", 0].fail("a test")
    directory.close()
    assert not (path / ".kafka_cleanshutdown").exists()
    directory = open_directory()
    open_all(directory)
    assert directory.logs["a", 0].end_offset == 1


@pytest.fixture
def one_damaged(open_directory, path, make_batch, append):
    """Two logs of five batches, not closed cleanly, and a bit flipped in the file of a-0, which is returned."""
    directory = open_directory()
    for partition in range(2):
        log = directory.open_log("a", partition, config=CONFIG)
        for _ in range(5):
            append(log, make_batch(1, size=200))
    directory.close(clean=False)
    victim = path / "a-0" / f"{0:020d}.log"
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(data)
    return victim


def test_one_damaged_partition_does_not_hinder_the_others(open_directory, one_damaged):
    directory = open_directory()
    failures = open_all(directory)
    assert list(failures) == [("a", 0)]
    assert isinstance(failures["a", 0], CorruptLog)
    assert str(one_damaged) in str(failures["a", 0])
    assert directory.logs["a", 1].end_offset == 5


def test_another_process_cannot_take_the_directory(open_directory, path):
    open_directory()
    code = f"from storage import LogDirectory; LogDirectory.open({str(path)!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert DirectoryLocked.__name__ in result.stderr


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(open_directory, path, make_batch, append):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.delete("a", 0)
    assert list(directory.partitions()) == []
    assert [name for name in os.listdir(path) if name.startswith("a-0.") and name.endswith("-delete")]
    assert append(directory.open_log("a", 0, config=CONFIG), make_batch(1)).base_offset == 0
    directory.remove_deleted(T0 + 60_000)
    assert not [name for name in os.listdir(path) if name.endswith("-delete")]


def test_logs_that_have_deleted_nothing_are_not_asked_for_it(open_directory, make_batch, append, monkeypatch):
    """There may be ten thousand of them, and the event loop asks every second."""
    directory = open_directory()
    take_due = Mock(return_value=[])
    monkeypatch.setattr(PendingDeletions, "take_due", take_due)
    for topic in "abc":
        append(directory.open_log(topic, 0, config=CONFIG), make_batch(1))
    log = directory.logs["b", 0]
    log.roll()
    log.delete_before(1)
    directory.remove_deleted(T0)
    take_due.assert_called_once_with(T0)


def test_a_partition_can_be_deleted_to_make_room_on_a_disk_that_takes_no_other_name(path, make_batch, append):
    class FullDisk(Files):
        def rename(self, source, target):
            if target.endswith("-delete") and any(name.endswith(".log") for name in os.listdir(source)):
                raise OSError(errno.ENOSPC, "No space left on device")
            super().rename(source, target)

    directory = LogDirectory.open(str(path), files=FullDisk(), now_ms=lambda: T0)
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.delete("a", 0)
    assert [name for name in os.listdir(path) if name.startswith("a-0.") and name.endswith("-delete")]
    assert not (path / "a-0").exists()
    directory.close()


def test_directories_left_from_deletions_are_removed_at_a_start(open_directory, path, make_batch, append):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.delete("a", 0)
    directory.close(clean=False)
    open_directory()
    assert not [name for name in os.listdir(path) if name.endswith("-delete")]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_damaged_checkpoint_costs_time_not_records(open_directory, path, make_batch, append, name):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(3))
    directory.close()
    (path / name).write_bytes(b"rubbish")
    directory = open_directory()
    open_all(directory)
    assert directory.logs["a", 0].end_offset == 3


def test_a_kill_between_a_truncation_and_its_checkpoint_is_made_good_by_the_next_start(
    open_directory, path, make_batch, append
):
    """Or a torn tail among the batches that come then would be taken for damage to what had been synced."""
    directory = open_directory()
    log = directory.open_log("a", 0, config=CONFIG)
    for _ in range(5):
        append(log, make_batch(2))
    log.flush()
    directory.write_checkpoints()
    log.on_truncated = None  # killed just before
    log.truncate_to(4)
    directory._lock.close()
    directory.files.locked.clear()
    directory = open_directory()
    log = directory.open_log("a", 0, config=CONFIG)
    assert (log.end_offset, directory.noted_recovery_point(("a", 0))) == (4, 4)
    append(log, make_batch(2))
    append(log, make_batch(2))
    torn = next((path / "a-0").glob("*.log"))
    os.truncate(torn, torn.stat().st_size - 1)
    directory._lock.close()
    directory.files.locked.clear()
    assert open_directory().open_log("a", 0, config=CONFIG).end_offset == 6


def test_a_truncation_lowers_the_recovery_point_on_disk(open_directory, path, make_batch, append):
    directory = open_directory()
    log = directory.open_log("a", 0, config=CONFIG)
    append(log, make_batch(1))
    append(log, make_batch(1))
    log.flush()
    directory.write_checkpoints()
    log.truncate_to(1)
    assert (path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 1\n"


@pytest.mark.parametrize("empty_at", [None, 2])
def test_what_follows_a_truncation_below_the_start_is_there_after_a_kill(open_directory, make_batch, append, empty_at):
    """As after an unclean election: the new leader ends, or begins, before what had been deleted here."""
    directory = open_directory()
    log = directory.open_log("a", 0, config=CONFIG)
    for _ in range(10):
        append(log, make_batch(1))
    log.delete_before(8)
    directory.write_checkpoints({("a", 0): 9})
    if empty_at is None:
        log.truncate_to(5)
    else:
        log.truncate_fully_and_start_at(empty_at)
    first = log.end_offset
    append(log, make_batch(1))
    log.flush()
    directory.close(clean=False)
    directory = open_directory()
    again = directory.open_log("a", 0, config=CONFIG)
    assert (again.start_offset, again.end_offset) == (first, first + 1)
    assert directory.high_watermarks == {("a", 0): first}  # and what follows is not taken for committed


def test_idle_partitions_hold_no_files_open(open_directory):
    directory = open_directory()
    before = len(os.listdir("/proc/self/fd"))
    for partition in range(50):
        directory.open_log("a", partition, config=CONFIG)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_old_segments_share_a_limited_number_of_open_files(path, make_batch, append, read_batches):
    directory = LogDirectory.open(str(path), now_ms=lambda: T0, open_files_max=4)
    for partition in range(3):
        log = directory.open_log("a", partition, config=CONFIG)
        for _ in range(30):
            append(log, make_batch(1, size=1000))
        log.flush()
    for log in directory.logs.values():
        assert len(list(read_batches(log))) == 30
    opened = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]
    assert len([name for name in opened if name.startswith(str(path)) and name.endswith(".log")]) <= 4 + 3
    directory.close()


def test_logs_that_cannot_be_closed_deny_the_clean_mark(path, faulty_files, make_batch, append):
    path.mkdir()
    disk = faulty_files(path)
    directory = LogDirectory.open(str(path), files=disk, now_ms=lambda: T0)
    for partition in range(2):
        append(directory.open_log("a", partition, config=CONFIG), make_batch(1))
    disk.fail_sync = True
    with pytest.raises(OSError, match="sync failed"):
        directory.close()
    assert all(log.is_offline for log in directory.logs.values())
    assert not (path / ".kafka_cleanshutdown").exists()
    LogDirectory.open(str(path), now_ms=lambda: T0).close()


def test_hundreds_of_logs_are_closed_together_and_found_clean(open_directory, make_batch, append):
    directory = open_directory()
    for partition in range(150):
        append(directory.open_log("a", partition, config=CONFIG), make_batch(1 + partition % 3))
    directory.close()
    directory = open_directory()
    assert directory.was_clean
    assert open_all(directory) == {}
    assert [directory.logs["a", each].end_offset for each in range(4)] == [1, 2, 3, 1]


def test_logs_that_were_left_unopened_deny_the_clean_mark(open_directory, make_batch, append):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.close(is_complete=False)
    assert not open_directory().was_clean


def test_a_log_is_loaded_apart_and_then_taken_in(open_directory, make_batch, append):
    directory = open_directory()
    log = directory.load_log("a", 0, config=CONFIG)
    assert directory.logs == {}
    assert directory.add_log("a", 0, log) is log
    assert directory.open_log("a", 0, config=CONFIG) is log


def test_a_deletion_outlives_a_power_cut(path, faulty_files, make_batch, append, tmp_path_factory):
    path.mkdir()
    disk = faulty_files(path)
    directory = LogDirectory.open(str(path), files=disk, now_ms=lambda: T0)
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.logs["a", 0].flush()
    directory.delete("a", 0)
    directory.remove_deleted(T0)  # long before the files are due
    for seed in range(10):
        target = tmp_path_factory.mktemp("cut")
        disk.power_cut(Random(seed), target)
        again = LogDirectory.open(str(target), now_ms=lambda: T0)
        assert list(again.partitions()) == []
        again.close()
    directory.close()


def test_partitions_that_the_broker_is_not_assigned_are_taken_away(open_directory, path, make_batch, append):
    directory = open_directory()
    for topic in ("kept", "gone"):
        append(directory.open_log(topic, 0, config=CONFIG), make_batch(1))
    directory.close()
    directory = open_directory()
    directory.open_log("kept", 0, config=CONFIG)
    (renamed,) = directory.retire_strays(lambda topic, _: topic == "kept")
    assert renamed.startswith("gone-0.")
    assert renamed.endswith("-stray")
    assert list(directory.partitions()) == [("kept", 0)]
    directory.remove_deleted(T0 + 100_000_000)
    directory.close()
    open_directory()
    assert (path / renamed / f"{0:020d}.log").exists(), "it may be another broker's: it is not ours to destroy"


def test_a_truncation_of_what_was_never_synced_leaves_the_recovery_points_alone(
    open_directory, path, make_batch, append
):
    directory = open_directory()
    log = directory.open_log("a", 0, config=CONFIG)
    append(log, make_batch(1))
    log.flush()
    directory.write_checkpoints()
    before = (path / "recovery-point-offset-checkpoint").stat().st_ino
    append(log, make_batch(1))
    log.truncate_to(1)
    assert (path / "recovery-point-offset-checkpoint").stat().st_ino == before


def test_checkpoints_written_by_a_thread_never_undo_a_truncation(open_directory, path, make_batch, append):
    directory = open_directory()
    log = directory.open_log("a", 0, config=CONFIG)
    with ThreadPoolExecutor(2) as threads:
        for _ in range(30):
            append(log, make_batch(1))
            log.flush()
            directory.write_checkpoints()
            writing = threads.submit(directory.write_checkpoints, {("a", 0): 1})
            log.truncate_to(0)
            writing.result()
            assert (path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 0\n"


# The broker epoch of a clean stop (KIP-966)


def test_a_clean_stop_leaves_the_broker_epoch_in_every_directory(tmp_path):
    for name in "ab":
        LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0).close(broker_epoch=7)
    directories = [LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0) for name in "ab"]
    assert clean_broker_epoch(directories) == 7
    for each in directories:
        each.close(broker_epoch=8)
    directories = [LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0) for name in "ab"]
    assert clean_broker_epoch(directories) == 8
    for each in directories:
        each.close()


def test_a_directory_that_was_emptied_makes_the_stop_unclean(tmp_path):
    for name in "ab":
        LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0).close(broker_epoch=7)
    shutil.rmtree(tmp_path / "b")
    directories = [LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0) for name in "ab"]
    assert clean_broker_epoch(directories) == -1
    for each in directories:
        each.close()


def test_a_directory_that_was_closed_in_another_life_makes_the_stop_unclean(tmp_path):
    for epoch, name in enumerate("ab"):
        LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0).close(broker_epoch=epoch)
    directories = [LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0) for name in "ab"]
    assert clean_broker_epoch(directories) == -1
    for each in directories:
        each.close()


def test_a_life_that_ends_before_it_is_registered_keeps_the_epoch_of_the_last(open_directory):
    open_directory().close(broker_epoch=7)
    open_directory().close()
    assert open_directory().clean_epoch == 7


def test_a_mark_without_an_epoch_says_clean_and_nothing_more(open_directory, path):
    open_directory().close()
    for text in ("", "{}", "[]", "not json", '{"version": "0", "broker_epoch": "-1"}'):
        (path / ".kafka_cleanshutdown").write_text(text)
        directory = open_directory()
        assert (directory.was_clean, directory.clean_epoch) == (True, -1)
        directory.close()


def test_a_failed_sync_at_the_stop_leaves_no_epoch(path, faulty_files, make_batch, append):
    path.mkdir()
    disk = faulty_files(path)
    directory = LogDirectory.open(str(path), files=disk, now_ms=lambda: T0)
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    disk.fail_sync = True
    with pytest.raises(OSError, match="sync failed"):
        directory.close(broker_epoch=7)
    directory = LogDirectory.open(str(path), now_ms=lambda: T0)
    assert clean_broker_epoch([directory]) == -1
    directory.close()


def test_a_sync_that_failed_on_its_thread_just_before_the_stop_leaves_no_epoch(path, faulty_files, make_batch, append):
    """The kernel tells of a failed sync once. The one at the stop succeeds, and says nothing about those pages."""
    path.mkdir()
    disk = faulty_files(path)
    directory = LogDirectory.open(str(path), files=disk, now_ms=lambda: T0)
    log = directory.open_log("a", 0, config=CONFIG)
    append(log, make_batch(1))
    flush = log.begin_flush()
    disk.fail_sync = True
    with pytest.raises(OSError, match="sync failed"):
        flush()
    disk.fail_sync = False
    directory.close(broker_epoch=7)  # before finish_flush is called
    directory = LogDirectory.open(str(path), now_ms=lambda: T0)
    assert not directory.was_clean
    assert directory.open_log("a", 0, config=CONFIG).recovery_point == 0
    directory.close()


@pytest.mark.usefixtures("one_damaged")
def test_a_log_that_was_refused_is_checked_again_at_every_start(open_directory):
    for _ in range(3):
        directory = open_directory()
        assert not directory.was_clean
        assert list(open_all(directory)) == [("a", 0)]
        directory.close(broker_epoch=7)
    directory = open_directory()
    open_all(directory)
    directory.discard("a", 0)  # it is rebuilt from another replica
    directory.close(broker_epoch=7)
    assert open_directory().clean_epoch == 7


def test_a_log_that_was_refused_after_a_clean_stop_denies_the_next_clean_mark(
    open_directory, make_batch, append, monkeypatch
):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.close()
    directory = open_directory()
    assert directory.was_clean
    with monkeypatch.context() as damaged:
        reason = CorruptLog(path="a-0", position=0, reason="on purpose")
        damaged.setattr("tidemark.storage.directory.Log.open", Mock(side_effect=reason))
        assert list(open_all(directory)) == [("a", 0)]
    directory.close()
    assert not open_directory().was_clean


def test_a_log_that_nobody_opened_after_an_unclean_stop_denies_the_clean_mark(open_directory, make_batch, append):
    directory = open_directory()
    append(directory.open_log("a", 0, config=CONFIG), make_batch(1))
    directory.close(clean=False)
    open_directory().close()
    assert not open_directory().was_clean


def test_a_new_topic_has_nothing_of_a_deleted_one_of_its_name_even_after_a_kill(
    open_directory, path, make_batch, append
):
    directory = open_directory()
    old = directory.open_log("t", 0, config=CONFIG)
    for _ in range(100):
        append(old, make_batch(2))
    old.flush()
    old.delete_before(150)
    directory.write_checkpoints({("t", 0): 200})
    directory.delete("t", 0)
    new = directory.open_log("t", 0, config=CONFIG)
    assert (new.start_offset, new.recovery_point) == (0, 0)
    for _ in range(3):
        append(new, make_batch(2))
    directory.close(clean=False)
    directory = open_directory()
    assert open_all(directory) == {}
    again = directory.logs["t", 0]
    assert (again.start_offset, again.end_offset, again.recovery_point) == (0, 6, 0)
    assert directory.high_watermarks.get(("t", 0), 0) == 0


def test_a_new_topic_has_nothing_of_one_that_was_deleted_just_before_a_kill(open_directory, make_batch, append):
    directory = open_directory()
    old = directory.open_log("t", 0, config=CONFIG)
    append(old, make_batch(5))
    old.flush()
    old.delete_before(3)
    directory.write_checkpoints({("t", 0): 5})
    directory.delete("t", 0)
    directory.close(clean=False)
    directory = open_directory()
    new = directory.open_log("t", 0, config=CONFIG)
    assert (new.start_offset, new.end_offset) == (0, 0)
    append(new, make_batch(2))
    directory.close(clean=False)
    again = open_directory().open_log("t", 0, config=CONFIG)
    assert (again.start_offset, again.end_offset, again.recovery_point) == (0, 2, 0)


def test_a_partition_deleted_while_checkpoints_are_written_is_not_in_them(
    open_directory, monkeypatch, make_batch, append
):
    directory = open_directory()
    old = directory.open_log("t", 0, config=CONFIG)
    append(old, make_batch(2))
    old.flush()
    write = LogDirectory._write

    def delete_before_writing(self, name, offsets):
        if ("t", 0) in self.logs:
            directory.delete("t", 0)
        write(self, name, offsets)

    monkeypatch.setattr(LogDirectory, "_write", delete_before_writing)
    directory.write_checkpoints({("t", 0): 2})
    new = directory.open_log("t", 0, config=CONFIG)
    append(new, make_batch(2))
    directory.close(clean=False)
    again = open_directory().open_log("t", 0, config=CONFIG)
    assert (again.end_offset, again.recovery_point) == (2, 0)


def test_a_topic_of_a_deleted_ones_name_is_not_taken_for_clean(open_directory, make_batch, append):
    """The cleaner would leave the older values of its keys alone."""
    directory = open_directory()
    append(directory.open_log("orders", 0, config=CONFIG), make_batch(2))
    directory.cleaned_up_to["orders", 0] = 2
    directory.write_cleaned_up_to()
    directory.delete("orders", 0)
    directory.open_log("orders", 0, config=CONFIG)
    assert directory.cleaned_up_to == {}
    directory.close(clean=False)
    assert open_directory().cleaned_up_to == {}


class CountingFiles(Files):
    """Counts what is read, and how often a file is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.opened = 0

    def open_descriptor(self, path, flags):
        self.opened += 1
        return super().open_descriptor(path, flags)

    def read_range(self, fd, *, position, length):
        data = super().read_range(fd, position=position, length=length)
        self.bytes_read += len(data)
        return data


def test_after_a_clean_stop_no_more_is_read_of_much_data_than_of_little(tmp_path, make_batch, append):
    read = []
    for name, batches in (("little", 500), ("much", 10_000)):
        directory = LogDirectory.open(str(tmp_path / name), now_ms=lambda: T0)
        log = directory.open_log("t", 0, config=LogConfig(segment_bytes=256 << 10))
        for _ in range(batches):
            append(log, make_batch(1, size=1000, producer_id=3))
        size, end = log.size_bytes, log.end_offset
        directory.close()
        files = CountingFiles()
        directory = LogDirectory.open(str(tmp_path / name), files=files, now_ms=lambda: T0)
        assert directory.open_log("t", 0, config=CONFIG).end_offset == end
        directory.close()
        read.append((files.bytes_read, files.opened, size))
    little, much = read
    assert much[2] > 19 * little[2]
    assert max(little[0], much[0]) < 80_000, "the end of the last segment, its indexes, and the files beside them"
    assert much[1] == little[1]
