"""What Linux alone has is hidden, and everything works without it. (A Mac is not at hand: this is the next best.)"""

from __future__ import annotations

import os
import platform
import re
import resource
import select
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tidemark import portable
from tidemark.environment import new_executor

# Produces, consumes, stops, starts again, dies, recovers: with the names in argv hidden before Tidemark is imported.
LIFE = textwrap.dedent(
    """
    import asyncio, importlib, os, sys, time

    from confluent_kafka import Consumer, Producer, TopicPartition

    directory, *hidden = sys.argv[1:]
    for name in hidden:
        module, _, attribute = name.partition(".")
        if module == "platform":
            sys.platform = attribute
        else:
            assert hasattr(importlib.import_module(module), attribute), f"{name} does not exist here anyway"
            delattr(importlib.import_module(module), attribute)
    os.process_cpu_count = os.cpu_count  # Python 3.13 has it, and makes it so where there is no sched_getaffinity

    import tidemark

    def produce(broker, *values):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        for value in values:
            producer.produce("t", value, partition=0)
        assert producer.flush(15) == 0

    def consume(broker, count):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 0)])
        values = [message.value() for message in consumer.consume(count, timeout=15)]
        consumer.close()
        return values

    large = b"x" * 200_000  # more than is sent inline, so that a file range leaves as one
    with tidemark.embedded(directory, log_flush_interval_messages=1) as broker:
        produce(broker, b"one", large)
        assert consume(broker, 2) == [b"one", large]
    if os.fork() == 0:  # a life that ends without a stop
        with tidemark.embedded(directory, log_flush_interval_messages=1) as broker:
            produce(broker, b"three")
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    with tidemark.embedded(directory) as broker:
        assert consume(broker, 3) == [b"one", large, b"three"]
    print("lived")
    """
)

LINUX_ONLY = [
    "os.fdatasync",
    "os.sendfile",
    "os.preadv",
    "os.pwritev",
    "os.RWF_NOWAIT",
    "os.posix_fallocate",
    "os.posix_fadvise",
    "os.sched_getaffinity",
    "os.O_DIRECTORY",
    "socket.TCP_CONGESTION",
    "socket.TCP_USER_TIMEOUT",
    "socket.TCP_KEEPIDLE",
    "time.CLOCK_BOOTTIME",
]


def live_without(directory: Path, *hidden: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIFE, str(directory), *hidden],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_broker_lives_without_anything_that_only_linux_has(tmp_path: Path) -> None:
    assert live_without(tmp_path, *LINUX_ONLY, "platform.darwin") == "lived\n"


@pytest.mark.parametrize("name", LINUX_ONLY)
def test_the_broker_can_be_imported_without_each_of_them(name: str) -> None:
    module, _, _name = name.partition(".")
    code = (
        f"import {module}; del {name}; import tidemark; tidemark.embedded; import tidemark.cli.main, tidemark.cli.nodes"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])


def test_a_file_is_read_and_sent_where_sendfile_means_something_else(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 4096)
    left, right = socket.socketpair()
    with left, right, path.open("rb") as file:
        left.setblocking(False)
        sent = portable._read_and_send(left.fileno(), file.fileno(), 3, 1000)
        assert right.recv(2000) == path.read_bytes()[3 : 3 + sent]
        while select.select([], [left], [], 0)[1]:
            portable._read_and_send(left.fileno(), file.fileno(), 0, 1 << 20)
        with pytest.raises(BlockingIOError):
            portable._read_and_send(left.fileno(), file.fileno(), 0, 1 << 20)
        assert portable._read_and_send(left.fileno(), file.fileno(), 1 << 20, 10) == 0  # the file's end


def test_bytes_that_were_dropped_from_the_page_cache_are_seen_as_cold(tmp_path: Path) -> None:
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system cannot tell")
    path = tmp_path / "data"
    path.write_bytes(b"x" * (1 << 20))
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        assert portable.is_cached(file.fileno(), position=0, length=1 << 20)
        deadline = time.monotonic() + 20
        while portable.is_cached(
            file.fileno(), position=0, length=1 << 20
        ):  # it is advice, which the kernel follows in its own time
            assert time.monotonic() < deadline
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    code = textwrap.dedent(
        """
        import resource
        from tidemark import portable
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        assert portable.raise_descriptor_limit() == (100, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert portable.raise_descriptor_limit() == (hard, hard)
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])


def test_a_limit_that_the_system_refuses_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kind: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert portable.raise_descriptor_limit() == (256, 256)


def test_connections_can_be_told_to_give_up_on_a_silent_peer() -> None:
    with socket.socket() as each:
        portable.keep_alive(each, idle_seconds=5, interval_seconds=2, probes=3)
        portable.stop_pacing(each)
        assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if portable.limit_unacknowledged(each, milliseconds=1500):
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1500


@pytest.mark.skipif(not portable.IS_LINUX, reason="elsewhere threads have no priorities of their own")
def test_threads_of_a_pool_can_let_others_run_first() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    with new_executor(1, name="nice", niceness=5) as pool, new_executor(1, name="plain") as other:
        assert pool.submit(priority).result() == min(19, priority() + 5)
        assert other.submit(priority).result() == priority()


def test_a_thread_takes_short_turns_where_the_system_knows_of_them(monkeypatch) -> None:
    def short_and_long() -> tuple[bool, bool]:
        return portable.take_short_turns(0.0001), portable.take_short_turns(0.003)

    with new_executor(1, name="short") as pool:  # a thread of its own: what it has asked for ends with it
        release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
        known = portable.IS_LINUX and release >= (6, 12) and platform.machine() in ("x86_64", "aarch64")
        assert pool.submit(short_and_long).result() == (known, known)
        monkeypatch.setattr(platform, "machine", lambda: "pdp11")
        assert pool.submit(short_and_long).result() == (False, False)


def test_what_the_disks_have_not_got_yet_is_told_as_a_share_of_what_may_lie_in_memory(tmp_path, monkeypatch):
    vmstat = tmp_path / "vmstat"
    monkeypatch.setattr(portable, "IS_LINUX", True)
    monkeypatch.setattr(portable, "_VMSTAT", str(vmstat))
    assert portable.unwritten_share() == 0.0, "the system does not say"
    vmstat.write_text(
        "nr_free_pages 9\nnr_dirty 30\nnr_writeback 20\nnr_dirtied 7\nnr_dirty_background_threshold 200\n"
    )
    assert portable.unwritten_share() == 0.25
    vmstat.write_text("nr_free_pages 9\n")
    assert portable.unwritten_share() == 0.0
    monkeypatch.setattr(portable, "IS_LINUX", False)
    assert portable.unwritten_share() == 0.0
