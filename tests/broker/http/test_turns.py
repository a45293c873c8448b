"""Whose turn it is while HTTP has more to do than it can: Kafka's clients wait for one step of it, not for several."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from typing import Any

import pytest
from harness.ports import free_port

import tidemark
from tidemark.broker.http.application import HttpApplication
from tidemark.broker.http.connection import HttpConnection
from tidemark.broker.server.crowd import CrowdSelector

CONNECTIONS, REQUESTS = 30, 20
BODY = b'{"value": "x"}'
HEAD = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
POST = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def produce(port: int, failed: list[Exception], start: threading.Barrier) -> None:
    try:
        with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answers:
            start.wait(20)
            for _ in range(REQUESTS):
                client.sendall(POST)
                assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
                while line := answers.readline().strip():
                    if line.startswith(b"Content-Length:"):
                        size = int(line.partition(b":")[2])
                assert b"offset" in answers.read(size)
    except Exception as error:
        failed.append(error)


def test_in_a_turn_one_socket_is_read_or_one_request_worked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, steps = 0, Counter[int]()
    select, received, answer = CrowdSelector.select, HttpConnection.buffer_updated, HttpApplication.__call__

    def select_counted(self: CrowdSelector, timeout: float | None = None) -> Any:
        nonlocal turn
        turn += 1
        return select(self, timeout)

    def received_counted(self: HttpConnection, nbytes: int) -> None:
        steps[turn] += 1
        received(self, nbytes)

    async def answer_counted(self: HttpApplication, request: Any) -> Any:
        steps[turn] += 1
        return await answer(self, request)

    monkeypatch.setattr(CrowdSelector, "select", select_counted)
    monkeypatch.setattr(HttpConnection, "buffer_updated", received_counted)
    monkeypatch.setattr(HttpApplication, "__call__", answer_counted)
    port, failed, start = free_port(), list[Exception](), threading.Barrier(CONNECTIONS)
    with tidemark.embedded(**{"http.listeners": f"HTTP://127.0.0.1:{port}"}):
        clients = [threading.Thread(target=produce, args=[port, failed, start]) for _ in range(CONNECTIONS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert not failed
    assert sum(steps.values()) == 2 * CONNECTIONS * REQUESTS
    assert max(steps.values()) == 1
