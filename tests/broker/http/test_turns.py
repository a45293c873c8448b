"""Whose turn it is while HTTP has more to do than it can: Kafka's clients wait for one step of it, not for several."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.ports import free_port

import tidemark
from tidemark.broker.core.background_work import BackgroundWork
from tidemark.broker.core.sliced_work import SLICE_SECONDS, Job
from tidemark.broker.http.application import HttpApplication
from tidemark.broker.http.calls import Calls
from tidemark.broker.http.connection import HttpConnection
from tidemark.broker.http.listener import HttpListener
from tidemark.broker.http.messages import HttpRequest, HttpResponse
from tidemark.broker.server.crowd import BrokerLoop, CrowdSelector
from tidemark.protocol.messages.produce import ProduceRequest, ProduceResponse

CONNECTIONS, REQUESTS = 30, 20
BODY = b'{"value": "x"}'
HEAD = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


BATCH = b"[" + b",".join([b'{"value": "%b"}' % (b"x" * 1000)] * 100) + b"]"
BATCHES = 3


def post(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def produce(port: int, body: bytes, count: int, failed: list[Exception], start: threading.Barrier) -> None:
    try:
        with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answers:
            start.wait(20)
            for _ in range(count):
                client.sendall(post(body))
                assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
                while line := answers.readline().strip():
                    if line.startswith(b"Content-Length:"):
                        size = int(line.partition(b":")[2])
                assert b"offset" in answers.read(size)
    except Exception as error:
        failed.append(error)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """By turns of the loop: sockets that are read, and requests that are begun."""
    turn, asked, steps = 0, 0, Counter[int]()
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

    # Of longer requests: a slice of their work, and what is done when that has come to its end.
    slice_of, ask, send = BackgroundWork._turn, Calls.ask, HttpConnection._send

    def slice_counted(self: BackgroundWork) -> None:
        steps[turn] += not self._turns.is_taken
        slice_of(self)

    async def ask_counted(self: Calls, request: Any, *args: Any, **more: Any) -> Any:
        nonlocal asked
        if is_long(request):
            steps[turn] += 1
            asked = turn
        return await ask(self, request, *args, **more)

    async def send_counted(self: HttpConnection, answer: HttpResponse, *args: Any, **more: Any) -> None:
        # Where the append has left time of the turn's slice, the answer to it is the same step.
        steps[turn] += len(answer.body) > 1000 and asked != turn
        await send(self, answer, *args, **more)

    monkeypatch.setattr(BackgroundWork, "_turn", slice_counted)
    monkeypatch.setattr(Calls, "ask", ask_counted)
    monkeypatch.setattr(HttpConnection, "_send", send_counted)
    return steps


def is_long(request: object) -> bool:
    return isinstance(request, ProduceRequest) and len(request.topic_data[0].partition_data[0].records or b"") > 1000


def flood(body: bytes, count: int) -> None:
    """Of many connections, each of which sends so many requests one after the other."""
    port, failed, start = free_port(), list[Exception](), threading.Barrier(CONNECTIONS)
    with tidemark.embedded(**{"http.listeners": f"HTTP://127.0.0.1:{port}"}) as broker:
        # Or those who come first ask for it, in steps of their own.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t")])["t"].result(10)
        arguments = [port, body, count, failed, start]
        clients = [threading.Thread(target=produce, args=arguments) for _ in range(CONNECTIONS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert not failed


def test_in_a_turn_one_socket_is_read_or_one_request_worked_at(steps: Counter[int]) -> None:
    flood(BODY, REQUESTS)
    assert sum(steps.values()) == 2 * CONNECTIONS * REQUESTS
    assert max(steps.values()) == 1


def test_of_long_requests_a_turn_has_a_slice_or_one_that_goes_on(steps: Counter[int]) -> None:
    flood(BATCH, BATCHES)
    assert sum(steps.values()) > 5 * CONNECTIONS * BATCHES, "each is read twice, begun, worked at, appended (answered)"
    assert max(steps.values()) == 1


def test_new_requests_are_taken_while_others_have_work_without_an_end(
    steps: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else health, which comes behind hundreds of streams, is not told for seconds."""
    opened = HttpListener.open

    def without_end() -> Job[None]:
        while True:
            yield

    async def open_with_work(self: HttpListener, *args: Any) -> None:
        work = getattr(asyncio.get_running_loop(), "background_work")  # noqa: B009 -- of a broker's own loop
        work.add(without_end())
        steps.clear()
        await opened(self, *args)

    slices, received, answer = 0, HttpConnection.buffer_updated, HttpApplication.__call__
    slice_of = BackgroundWork._turn
    began, ended = list[int](), list[int]()

    def slice_counted(self: BackgroundWork) -> None:
        nonlocal slices
        slices += not self._turns.is_taken
        slice_of(self)

    def received_noted(self: HttpConnection, nbytes: int) -> None:
        began.append(slices)
        received(self, nbytes)

    async def answer_noted(self: HttpApplication, request: Any) -> Any:
        ended.append(slices)
        return await answer(self, request)

    monkeypatch.setattr(HttpListener, "open", open_with_work)
    monkeypatch.setattr(BackgroundWork, "_turn", slice_counted)
    monkeypatch.setattr(HttpConnection, "buffer_updated", received_noted)
    monkeypatch.setattr(HttpApplication, "__call__", answer_noted)
    flood(BODY, 1)
    assert len(ended) == CONNECTIONS
    assert max(ended) - min(began) <= 8 * CONNECTIONS, "slices of the others' work meanwhile"


def test_what_a_handler_does_in_slices_has_slices_of_https() -> None:
    """A list of all topics, say: at a time Kafka's clients wait for no more of it than of other work of HTTP's."""
    used: list[str] = []

    def handler(_request: Any, _call: Any) -> Job[ProduceResponse]:
        for _ in range(3):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, BrokerLoop)
            used.append("background" if loop.background_work.is_busy else "shared" if loop.shared_work.is_busy else "")
            time.sleep(SLICE_SECONDS)
            yield
        return ProduceResponse()

    async def ask() -> None:
        calls = Calls(lambda _route, _version: handler, node_id=0, listener="", forwarding=None, go_on=lambda *_: None)
        request = HttpRequest(method="GET", target="/", headers={}, body=b"", host="", listener="")
        assert await calls.ask(ProduceRequest(), ProduceResponse, calls.caller(request)) == ProduceResponse()

    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        runner.run(ask())
    assert used == ["", "background", "background"]
