"""A test suite that forks while an embedded broker runs: multiprocessing did so by default until Python 3.14."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from harness.ports import free_port

import tidemark
from tidemark._forking import _sockets_on

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
    # One that the system gives to nobody else in the meantime.
    with tidemark.embedded(listeners=f"PLAINTEXT://127.0.0.1:{free_port()}") as broker:
        client = socket.create_connection((broker.host, broker.port), timeout=10)
        child = in_child(signal.pause)
    try:
        assert client.recv(1) == b""  # the broker has hung up, and no copy of the connection is left
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port), timeout=1)
    finally:
        client.close()
        end(child)


def test_the_port_is_free_before_a_forked_child_has_let_go_of_it() -> None:
    ports = [free_port(), free_port()]
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}", "http_listeners": f"HTTP://127.0.0.1:{ports[1]}"}
    with tidemark.embedded(**listeners):
        copies = [os.dup(each) for port in ports for each in list(_sockets_on(port))]
    try:
        assert len(copies) == len(ports)
        for port in ports:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=1)
    finally:
        for copy in copies:
            os.close(copy)


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
