from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tidemark.broker.server import background_sockets, crowd
from tidemark.broker.server.crowd import BrokerLoop, CrowdSelector


@pytest.fixture
def selector() -> Iterator[CrowdSelector]:
    with CrowdSelector() as selector:
        yield selector


@pytest.fixture
def ready(selector: CrowdSelector) -> Iterator[list[int]]:
    """Descriptors that are ready all the time: the first ten are nodes', the others a crowd of forty."""
    pipes = [os.pipe() for _ in range(50)]
    for reading, writing in pipes:
        os.write(writing, b"x")
        selector.register(reading, 1)
    found = [reading for reading, _ in pipes]
    selector.crowd.update(found[10:])
    yield found
    for pair in pipes:
        for each in pair:
            os.close(each)


def served(selector: CrowdSelector) -> list[int]:
    return [key.fd for key, _ in selector.select(0)]


def test_nodes_come_before_the_crowd(selector: CrowdSelector, ready: list[int]) -> None:
    found = served(selector)
    assert set(found[:10]) == set(ready[:10])
    assert set(found) == set(ready)


def test_a_flood_s_first_turn_is_shared_by_all_of_them(selector: CrowdSelector, ready: list[int]) -> None:
    assert selector.turn.slice_seconds == crowd.SLICE_SECONDS_MAX
    found = served(selector)
    assert (len(found) - 10) * selector.turn.slice_seconds <= crowd.TURN_SECONDS
    for each in found:
        selector.unregister(each)
    assert served(selector) == []
    assert selector.turn.slice_seconds == crowd.SLICE_SECONDS_MAX


def test_a_long_turn_makes_the_next_ones_short_and_everybody_has_a_turn(
    selector: CrowdSelector, ready: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(crowd, "monotonic", lambda: now)
    counts: Counter[int] = Counter()
    for _ in range(200):
        found = served(selector)
        counts.update(found)
        assert set(found[:10]) == set(ready[:10])
        now += 0.001 * (len(found) - 10)  # a millisecond for each client
    assert len(served(selector)) - 10 <= 10, "ten milliseconds' worth"
    of_crowd = [counts[each] for each in ready[10:]]
    assert min(of_crowd) >= max(of_crowd) - 2 > 10


def test_when_it_is_calm_again_all_are_served_at_once(
    selector: CrowdSelector, ready: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(crowd, "monotonic", lambda: now)
    served(selector)
    now += 1.0
    assert len(served(selector)) == 11
    for _ in range(8):
        now += 0.001
        found = served(selector)
    assert set(found) == set(ready)


def test_a_few_sockets_are_served_as_by_any_selector(selector: CrowdSelector) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        selector.register(ours, 1, "data")
        assert selector.select(0) == []
        began = time.monotonic()
        assert selector.select(0.05) == []
        assert time.monotonic() - began > 0.04
        theirs.send(b"x")
        [(key, events)] = selector.select(5)
        assert (key.data, events) == ("data", 1)


def test_those_behind_the_crowd_are_served_last_and_one_in_each_turn(selector: CrowdSelector, ready: list[int]) -> None:
    behind, crowd_left = set(ready[20:]), set(ready[10:20])
    selector.crowd -= behind
    for each in behind:
        selector.put_behind(each, is_busy=lambda: False)
    found = Counter[int]()
    for _ in range(60):
        turn = served(selector)
        assert set(turn[:10]) == set(ready[:10])
        assert set(turn[10:20]) == crowd_left
        assert len(turn[20:]) == 1
        found.update(turn[20:])
    assert set(found) == behind
    assert max(found.values()) == min(found.values()) == 2


def test_those_behind_the_crowd_are_not_served_in_a_turn_that_is_busy_but_for_one_now_and_then(
    selector: CrowdSelector, ready: list[int]
) -> None:
    is_busy = True
    for each in ready[3:]:
        selector.unregister(each)
    for each in (ready[0], ready[2]):
        selector.put_behind(each, is_busy=lambda: is_busy)
    turns = [served(selector) for _ in range(4 * (background_sockets.PASSED_MAX + 1))]
    assert [turn[0] for turn in turns] == [ready[1]] * len(turns)
    assert Counter(each for turn in turns for each in turn[1:]) == {ready[0]: 2, ready[2]: 2}
    is_busy = False
    assert [len(served(selector)) for _ in range(4)] == [2] * 4


def test_those_behind_the_crowd_are_registered_like_others_and_forgotten(selector: CrowdSelector) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        descriptor = ours.fileno()
        selector.put_behind(descriptor, is_busy=lambda: False)
        selector.register(descriptor, selectors.EVENT_READ, "reader")
        assert selector.get_key(descriptor).data == "reader"
        theirs.send(b"x")
        assert [(key.data, events) for key, events in selector.select(5)] == [("reader", selectors.EVENT_READ)]
        selector.modify(descriptor, selectors.EVENT_WRITE, "writer")
        assert [(key.data, events) for key, events in selector.select(5)] == [("writer", selectors.EVENT_WRITE)]
        selector.unregister(descriptor)
        assert selector.select(0) == []
        with pytest.raises(KeyError):
            selector.get_key(descriptor)
        selector.forget_behind(descriptor)
        selector.register(descriptor, selectors.EVENT_READ, "another")  # as the next connection with its number
        assert [key.data for key, _ in selector.select(0)] == ["another"]


def test_one_behind_the_crowd_that_wants_no_more_is_not_served(selector: CrowdSelector, ready: list[int]) -> None:
    for each in ready[3:]:
        selector.unregister(each)
    for each in ready[:3]:
        selector.put_behind(each, is_busy=lambda: False)
    [first] = served(selector)
    for each in ready[:3]:
        if each != first:
            selector.unregister(each)
    found = served(selector) + served(selector)
    assert set(found) == {first}, "the others were ready before, and have stopped reading"


@contextlib.contextmanager
def loop_with_two_sockets() -> Iterator[tuple[BrokerLoop, Callable[[], list[str]]]]:
    """A loop that reads from `kafka` and from `http`, which is behind; and what is done in a turn in which both are
    ready, and a step was to be called."""
    loop, order = BrokerLoop(), list[str]()
    with contextlib.closing(loop):
        [kafka, http], others = zip(*(socket.socketpair() for _ in range(2)), strict=True)
        for each in (kafka, http, *others):
            each.setblocking(False)

        def read(name: str, each: socket.socket) -> None:
            each.recv(1)
            order.append(name)

        loop.add_reader(kafka.fileno(), read, "kafka", kafka)
        loop.add_reader(http.fileno(), read, "http", http)

        def turn() -> list[str]:
            order.clear()
            for each in others:
                each.send(b"x")
            loop.call_soon(order.append, "step")
            loop.call_soon(loop.call_soon, loop.stop)
            loop.run_forever()
            return list(order)

        assert turn()[0] == "step"
        loop.selector.put_behind(http.fileno(), is_busy=lambda: False)
        yield loop, turn
        for each in (kafka, http):
            loop.remove_reader(each.fileno())
        for each in (kafka, http, *others):
            each.close()


def test_where_there_is_http_sockets_come_before_what_was_to_be_called() -> None:
    """That is the next step of HTTP: a request that arrived during one step does not wait for another."""
    with loop_with_two_sockets() as (_, turn):
        assert turn() == ["kafka", "http", "step"]


@pytest.mark.parametrize("found", [None, ()], ids=["gone", "of another kind"])
def test_an_event_loop_that_keeps_its_calls_elsewhere_serves_in_its_own_order(
    monkeypatch: pytest.MonkeyPatch, found: object
) -> None:
    """`_ready` is asyncio's own affair, and may be called otherwise one day."""
    monkeypatch.setattr("tidemark.broker.server.crowd.READY", "_elsewhere")
    with loop_with_two_sockets() as (loop, turn):
        if found is not None:
            monkeypatch.setattr(loop, "_elsewhere", found, raising=False)
        assert turn() == ["step", "kafka", "http"]
