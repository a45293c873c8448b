"""A broker with two disks, one of which is a real file system that fills up, and is taken away: the other goes on."""

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
def broker(new_broker: Callable[..., BrokerProcess], small_disk: Path) -> BrokerProcess:
    made = new_broker()
    made.stop()
    made.settings["log.dirs"] = f"{made.data},{small_disk}"
    made.start()
    for topic in ("a", "b"):
        create_topic(made.bootstrap, topic)
    return made


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
    broker: BrokerProcess, small_disk: Path
) -> None:
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
