"""What a follower asks its leader for, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.replication.fetcher import Fetcher
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchRequest, FetchResponse
from tidemark.storage import WriteFailed

from .conftest import Cluster

New = Callable[..., Cluster]


class Heard:
    """What the leader, node 1, is asked by node 2, and how it answers if a test wants it otherwise."""

    def __init__(self, cluster: Cluster) -> None:
        self.requests: list[FetchRequest] = []
        self.answers: list[FetchResponse] = []
        sessions = cluster.nodes[1].follower_sessions
        self._fetch = sessions.fetch
        sessions.fetch = self._hear  # type: ignore[method-assign]

    def _hear(self, request: FetchRequest, *rest: Any) -> Any:
        self.requests.append(request)
        return self.answers.pop() if self.answers else self._fetch(request, *rest)

    def topics(self, request: FetchRequest) -> set[bytes]:
        return {each.topic_id for each in request.topics}


async def test_a_session_names_everything_once_and_then_what_has_changed(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2, topics=("t", "u"))
    await cluster.stop(2)
    heard = Heard(cluster)
    cluster.start(2)
    await cluster.until(lambda: heard.requests)
    assert heard.requests[0].session_epoch == 0
    assert heard.topics(heard.requests[0]) == set(cluster.topic_ids.values())
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    later = heard.requests[1:]
    assert all(each.session_id for each in later)
    assert set().union(*map(heard.topics, later)) == {cluster.topic_ids["t"]}, "only t has changed"


async def test_session_epochs_grow_by_one(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2)
    heard = Heard(cluster)
    for value in (b"a", b"b", b"c"):
        assert await cluster.acknowledged(1, cluster.append(1, value)) is None
    epochs = [each.session_epoch for each in heard.requests]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))


async def test_a_session_that_the_leader_has_forgotten_begins_anew(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2)
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    heard = Heard(cluster)
    heard.answers.append(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    await cluster.until(lambda: 0 in [each.session_epoch for each in heard.requests])
    assert await cluster.acknowledged(1, cluster.append(1, b"b")) is None
    assert cluster.values(2) == [b"a", b"b"]


async def test_a_deleted_topic_is_taken_out_of_the_session(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2, topics=("t", "u"))
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    heard = Heard(cluster)
    gone = cluster.topic_ids["u"]
    cluster.drop("u")
    await cluster.until(lambda: any(each.forgotten_topics_data for each in heard.requests))
    (request,) = (each for each in heard.requests if each.forgotten_topics_data)
    assert [each.topic_id for each in request.forgotten_topics_data] == [gone]


async def test_a_leader_that_cannot_be_reached_is_asked_again(new_cluster: New) -> None:
    cluster = new_cluster(nodes=2, **{"replica.fetch.backoff.ms": "20"})
    cluster.cut |= {(1, 2), (2, 1)}
    last = cluster.append(1, b"a")
    assert cluster.led(1).must_wait(last)
    cluster.cut.clear()
    assert await cluster.acknowledged(1, last) is None
    assert cluster.values(2) == [b"a"]


async def test_a_fetcher_that_is_stopped_ends_whatever_becomes_of_its_request(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=2)
    await cluster.stop(2)
    asked: list[asyncio.Task[None]] = []

    async def fail_when_cancelled() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise ValueError("it cannot be cancelled")

    def ask(self: Fetcher) -> asyncio.Task[None]:
        self._signal.clear()
        asked.append(asyncio.ensure_future(fail_when_cancelled()))
        return asked[-1]

    monkeypatch.setattr(Fetcher, "_ask", ask)
    cluster.start(2)
    await cluster.until(lambda: asked)
    await asyncio.wait_for(cluster.stop(2), 10)
    assert len(asked) == 1


async def test_a_partition_that_cannot_be_written_holds_up_no_other(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=2, topics=("t", "u"))

    def fail(_records: object) -> None:
        raise WriteFailed("no room")

    bad = cluster.replica(2)
    monkeypatch.setattr(type(bad), "append_fetched", _only_for(bad, fail, type(bad).append_fetched))
    stuck = cluster.append(1, b"a")
    assert await cluster.acknowledged(1, cluster.append(1, b"b", topic="u"), topic="u") is None
    assert cluster.led(1).must_wait(stuck)
    monkeypatch.undo()
    assert await cluster.acknowledged(1, stuck) is None, "it is tried again"


def _only_for(chosen: object, instead: Callable[[Any], Any], otherwise: Callable[[Any, Any], Any]) -> Any:
    return lambda self, records: instead(records) if self is chosen else otherwise(self, records)
