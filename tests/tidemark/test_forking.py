"""A test suite that forks while an embedded broker runs: multiprocessing did so by default until Python 3.14."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

import tidemark

# From Python 3.12 on, forking with threads is warned of; that suites do it anyway is why this is here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], object]) -> int:
    """Fork, run this in the child, and return the child's process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_port_is_free_and_connections_end_though_a_forked_child_lives() -> None:
    with tidemark.embedded() as broker:
        client = socket.create_connection((broker.host, broker.port), timeout=10)
        child = in_child(signal.pause)
    try:
        assert client.recv(1) == b""  # the broker has hung up, and no copy of the connection is left
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port), timeout=1)
    finally:
        client.close()
        end(child)


def test_the_broker_serves_on_after_a_fork() -> None:
    with tidemark.embedded() as broker:
        child = in_child(lambda: None)
        assert os.waitpid(child, 0)[1] == 0
        assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).brokers


def test_a_child_that_leaves_the_block_stops_nothing_and_removes_nothing() -> None:
    embedding = tidemark.embedded()
    broker = embedding.__enter__()
    child = in_child(lambda: embedding.__exit__(None, None, None))
    assert os.waitpid(child, 0)[1] == 0
    assert broker.data_directory.is_dir()
    assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).brokers
    embedding.__exit__(None, None, None)
    assert not broker.data_directory.exists()
