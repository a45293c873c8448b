"""A broker whose log nobody takes: a pipe that is full, as behind a pager that was left, or a supervisor that hangs."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.batches import batch_of
from harness.broker_process import REPOSITORY, Tidemark
from harness.ports import free_port
from harness.requests import produce
from harness.waiting import eventually
from harness.wire import Wire

from tidemark.cli.main import main as tidemark

SECONDS_MAX = 30.0


@pytest.fixture(autouse=True)
def buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As usual: what is in the interpreter's own buffers at its end is a matter of its own."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def fill(descriptor: int) -> None:
    again = os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)  # the flag is this open file's only
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(again, b"." * size)
    os.close(again)


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    fill(writer)
    yield reader, writer
    os.close(reader)


def test_a_broker_whose_log_is_not_read_serves_and_stops(full_pipe: tuple[int, int], tmp_path: Path) -> None:
    _, writer = full_pipe
    broker = Tidemark(tmp_path)
    broker.port = free_port()
    command = [*broker.command(), "--log-level", "DEBUG"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True, cwd=REPOSITORY)
    os.close(writer)
    try:
        assert process.stdout is not None
        assert "Tidemark is ready" in process.stdout.readline()
        assert tidemark(["topics", "create", "t", "-b", broker.bootstrap]) == 0
        with Wire(broker.host, broker.port) as wire:
            assert produce(wire, "t", batch_of(b"x"), acks=-1).error_code == 0
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_broker_none_of_whose_output_is_read_serves_and_stops(full_pipe: tuple[int, int], tmp_path: Path) -> None:
    """As with `2>&1 |`: that it is ready is not read, either."""
    _, writer = full_pipe
    broker = Tidemark(tmp_path)
    broker.port = free_port()
    process = subprocess.Popen(broker.command(), stdout=writer, stderr=writer, cwd=REPOSITORY)
    os.close(writer)
    try:
        eventually(lambda: tidemark(["topics", "create", "t", "-b", broker.bootstrap]) == 0, seconds_max=SECONDS_MAX)
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()


def test_what_was_not_taken_at_once_is_there_when_somebody_reads(full_pipe: tuple[int, int], tmp_path: Path) -> None:
    reader, writer = full_pipe
    broker = Tidemark(tmp_path)
    broker.port = free_port()
    process = subprocess.Popen(broker.command(), stdout=subprocess.PIPE, stderr=writer, text=True, cwd=REPOSITORY)
    os.close(writer)
    try:
        assert process.stdout is not None
        assert "Tidemark is ready" in process.stdout.readline()
        process.terminate()
        with os.fdopen(os.dup(reader), "rb") as taken:
            log = taken.read().decode()
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.communicate()
    assert "tidemark.broker: stopping" in log
    assert log.endswith("tidemark.broker: stopped\n")


def test_a_broker_that_cannot_start_ends_though_its_log_is_not_read(full_pipe: tuple[int, int], tmp_path: Path) -> None:
    _, writer = full_pipe
    broker = Tidemark(tmp_path)
    with socket.create_server((broker.host, 0)) as taken:
        broker.port = taken.getsockname()[1]
        process = subprocess.Popen(broker.command(), stdout=subprocess.DEVNULL, stderr=writer, cwd=REPOSITORY)
        os.close(writer)
        try:
            assert process.wait(SECONDS_MAX) == 1
        finally:
            process.kill()
            process.wait()


def test_why_a_broker_ends_is_told_behind_what_it_logged_before(tmp_path: Path) -> None:
    broker = Tidemark(tmp_path)
    with socket.create_server((broker.host, 0)) as taken:
        broker.port = taken.getsockname()[1]
        command = [*broker.command(), "--log-level", "DEBUG"]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=SECONDS_MAX)
    assert "cannot listen" in ended.stderr.splitlines()[-1], ended.stderr
    assert len(ended.stderr.splitlines()) > 1
