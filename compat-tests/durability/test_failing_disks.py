"""A broker with two disks, one of which is a real file system that fills up, is taken away, or becomes read-only: the
other goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster.nemesis_disk import full
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all, read_everything
from harness.waiting import eventually

MEGABYTES = 24


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "none", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)


@pytest.fixture
def ext4_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that becomes read-only, while files on it are being written to, when an error is found in it."""
    path, image = tmp_path / "ext4", tmp_path / "image"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(MEGABYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)


def make_read_only(disk: Path) -> None:
    """As the kernel does with a file system that it finds damaged."""
    found = subprocess.run(["findmnt", "-no", "SOURCE", str(disk)], check=True, capture_output=True, text=True)
    Path("/sys/fs/ext4", Path(found.stdout.strip()).name, "trigger_fs_error").write_text("a test")


def with_second_disk(broker: BrokerProcess, disk: Path) -> BrokerProcess:
    broker.stop()
    broker.settings["log.dirs"] = f"{broker.data},{disk}"
    broker.start()
    for topic in ("a", "b"):
        create_topic(broker.bootstrap, topic)
    return broker


def is_taken(broker: BrokerProcess, topic: str, *, seconds: int) -> bool:
    return not produce_all(broker.bootstrap, topic, [b"x" * 5000], message_timeout_ms=seconds * 1000).errors


def log_dirs(broker: BrokerProcess) -> dict[str, str | None]:
    command = [sys.executable, "-m", "tidemark.cli.main", "cluster", "log-dirs", "-b", broker.bootstrap, "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {each["path"]: each["error"] for each in json.loads(shown.stdout)}


def on(disk: Path) -> str:
    (found,) = (each for each in ("a", "b") if (disk / f"{each}-0").is_dir())
    return found


def test_a_full_disk_refuses_heals_and_when_it_is_taken_away_the_other_goes_on(
    new_broker: Callable[..., BrokerProcess], small_disk: Path
) -> None:
    broker = with_second_disk(new_broker(), small_disk)
    small, large = on(small_disk), on(broker.data)
    assert is_taken(broker, small, seconds=30)
    with full(small_disk):
        assert not is_taken(broker, small, seconds=3)
        assert is_taken(broker, large, seconds=30)
        assert len(read_everything(broker.bootstrap, small)) == 1
        assert log_dirs(broker) == {str(small_disk): None, str(broker.data): None}
    assert is_taken(broker, small, seconds=30)
    assert len(read_everything(broker.bootstrap, small)) == 2

    subprocess.run(["umount", "--lazy", str(small_disk)], check=True)
    eventually(lambda: f"log directory {small_disk} is offline" in broker.log, seconds_max=30)
    assert log_dirs(broker) == {str(small_disk): "KAFKA_STORAGE_ERROR", str(broker.data): None}
    assert is_taken(broker, large, seconds=30)
    assert not is_taken(broker, small, seconds=3)
    assert broker.is_running


def test_a_disk_that_becomes_read_only_goes_offline_alone_and_is_left_out_by_the_next_start(
    new_broker: Callable[..., BrokerProcess], ext4_disk: Path
) -> None:
    broker = with_second_disk(new_broker(), ext4_disk)
    small, large = on(ext4_disk), on(broker.data)
    assert is_taken(broker, small, seconds=30)
    make_read_only(ext4_disk)
    assert not is_taken(broker, small, seconds=2)
    eventually(lambda: f"log directory {ext4_disk} is offline" in broker.log, seconds_max=30)
    for _ in ("running", "restarted"):
        assert log_dirs(broker) == {str(ext4_disk): "KAFKA_STORAGE_ERROR", str(broker.data): None}
        assert is_taken(broker, large, seconds=30)
        broker.restart(clean=True)
    assert len(read_everything(broker.bootstrap, large)) == 2
