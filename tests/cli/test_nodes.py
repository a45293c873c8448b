"""`tidemark start --nodes N`: which node listens where, with which settings."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness.ports import free_ports

from tidemark.broker.config import load_config
from tidemark.cli.nodes import READY, plan
from tidemark.failure import CommandFailed


def settings_of(count: int, **given: str) -> list[dict[str, str]]:
    config = load_config(None, {name.replace("_", "."): value for name, value in given.items()})
    return [dict(each.partition("=")[::2] for each in node.settings) for node in plan(config, count)]


def test_ports_count_up_and_the_clusters_own_come_after_them() -> None:
    nodes = settings_of(3, listeners="PLAINTEXT://127.0.0.1:9092", log_dirs="/d")
    assert [each["listeners"] for each in nodes] == [
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9095",
        "PLAINTEXT://127.0.0.1:9093,CONTROLLER://127.0.0.1:9096",
        "PLAINTEXT://127.0.0.1:9094,CONTROLLER://127.0.0.1:9097",
    ]
    assert {each["controller.quorum.voters"] for each in nodes} == {
        "1@127.0.0.1:9095,2@127.0.0.1:9096,3@127.0.0.1:9097"
    }
    assert [each["log.dirs"] for each in nodes] == ["/d/node-1", "/d/node-2", "/d/node-3"]
    assert {each["default.replication.factor"] for each in nodes} == {"3"}
    assert {each["min.insync.replicas"] for each in nodes} == {"2"}


@pytest.mark.parametrize(("nodes", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)])
def test_an_odd_number_votes(nodes: int, voters: int) -> None:
    assert len(settings_of(nodes)[0]["controller.quorum.voters"].split(",")) == voters


def test_the_machine_is_the_rack_of_all_its_nodes() -> None:
    assert [node["broker.rack"] for node in settings_of(3)] == [socket.gethostname()] * 3


def test_what_the_user_has_set_stays() -> None:
    node = settings_of(3, min_insync_replicas="1", broker_rack="r")[0]
    assert "min.insync.replicas" not in node
    assert "broker.rack" not in node


def test_each_nodes_settings_are_valid() -> None:
    for node in settings_of(4):
        load_config(None, node)


def test_a_port_of_zero_cannot_be_counted_up() -> None:
    with pytest.raises(CommandFailed, match="cannot be 0"):
        settings_of(3, listeners="PLAINTEXT://127.0.0.1:0")


def test_three_nodes_start_with_one_command_and_stop_with_one_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemark.cli.main", "start", "--nodes", "3"]
    command += ["--set", f"listeners=PLAINTEXT://127.0.0.1:{free_ports(6)}", "--set", f"log.dirs={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(READY)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node-1", "node-2", "node-3"]
