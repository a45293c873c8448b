"""KIP-227: sessions that name each partition once and answer only with what changed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from harness.batches import batch_of
from harness.errors import Error
from harness.requests import batches, fetch, fetched, partition_to_fetch, produce
from harness.topic import Topic, TopicMaker
from harness.wire import Wire


class Session:
    """A consumer's side of one session, epochs counted as clients count them."""

    def __init__(self, wire: Wire, topic: Topic, *partitions: dict[str, Any]) -> None:
        self.wire, self.topic, self.epoch = wire, topic, 0
        self.first = fetch(wire, topic.id, *partitions, session_epoch=0)
        self.id = self.first.session_id
        assert self.first.error_code == Error.NONE
        assert self.id > 0

    def poll(self, *partitions: dict[str, Any], **changes: Any) -> dict[int, Any]:
        self.epoch += 1
        answer = fetch(
            self.wire, self.topic.id, *partitions,
            session_id=self.id, session_epoch=self.epoch, max_wait_ms=100, **changes,
        )  # fmt: skip
        assert (answer.error_code, answer.session_id) == (Error.NONE, self.id)
        return fetched(answer)

    def raw(self, *, epoch: int, session_id: int | None = None) -> Any:
        return fetch(
            self.wire, self.topic.id,
            session_id=self.id if session_id is None else session_id, session_epoch=epoch, max_wait_ms=100,
        )  # fmt: skip


@pytest.fixture
def topic(wire: Wire, make_topic: TopicMaker) -> Topic:
    made = make_topic(partitions=3)
    for _ in range(2):
        produce(wire, made.name, batch_of(b"a", b"b"))
    return made


@pytest.fixture
def session(wire: Wire, topic: Topic) -> Session:
    return Session(wire, topic, *(partition_to_fetch(index) for index in range(3)))


def test_full_fetch_opens_a_session_and_names_every_partition(session: Session) -> None:
    assert list(fetched(session.first)) == [0, 1, 2]


def test_fetch_with_epoch_minus_1_opens_no_session(wire: Wire, topic: Topic) -> None:
    assert fetch(wire, topic.id, partition_to_fetch()).session_id == 0


def test_incremental_fetch_answers_only_what_changed(wire: Wire, topic: Topic, session: Session) -> None:
    assert session.poll(partition_to_fetch(0, 4)) == {}
    assert session.poll() == {}
    produce(wire, topic.name, batch_of(b"new"), partition=1)
    changed = session.poll()
    assert list(changed) == [1]
    assert changed[1].high_watermark == 1
    assert [batch.values for batch in batches(changed[1])] == [(b"new",)]


def test_data_comes_again_until_the_fetch_offset_moves(session: Session) -> None:
    assert list(session.poll()) == [0]
    assert list(session.poll()) == [0]
    assert session.poll(partition_to_fetch(0, 4)) == {}


def test_moved_log_start_is_a_change(wire: Wire, topic: Topic, session: Session) -> None:
    session.poll(partition_to_fetch(0, 4))
    wire.call(
        "DeleteRecords", 2, timeout_ms=5000,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 2}]}],
    )  # fmt: skip
    changed = session.poll()
    assert {index: partition.log_start_offset for index, partition in changed.items()} == {0: 2}


def test_wrong_epoch_is_refused_and_the_session_lives_on(session: Session) -> None:
    session.poll(partition_to_fetch(0, 4))
    for epoch in (9, 1):
        answer = session.raw(epoch=epoch)
        assert (answer.error_code, answer.responses) == (Error.INVALID_FETCH_SESSION_EPOCH, [])
    assert session.poll() == {}


def test_unknown_session_is_refused(session: Session) -> None:
    for unknown in (0, session.id ^ 0x5A5A5A):
        answer = session.raw(epoch=1, session_id=unknown)
        assert (answer.error_code, answer.session_id) == (Error.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_forgotten_partition_is_answered_no_more(wire: Wire, topic: Topic, session: Session) -> None:
    session.poll(partition_to_fetch(0, 4), forgotten_topics_data=[{"topic_id": topic.id, "partitions": [1]}])
    for index in (1, 2):
        produce(wire, topic.name, batch_of(b"new"), partition=index)
    assert list(session.poll()) == [2]


def test_partition_can_be_added_later(wire: Wire, topic: Topic) -> None:
    session = Session(wire, topic, partition_to_fetch(1))
    assert list(session.poll(partition_to_fetch(0))) == [0]


def test_error_is_told_again_until_it_is_over(topic: Topic, session: Session) -> None:
    changed = session.poll(partition_to_fetch(0, 4), partition_to_fetch(9), partition_to_fetch(2, 50))
    errors = {index: partition.error_code for index, partition in changed.items()}
    assert errors == {9: Error.UNKNOWN_TOPIC_OR_PARTITION, 2: Error.OFFSET_OUT_OF_RANGE}
    assert set(session.poll()) == {9, 2}
    recovered = session.poll(
        partition_to_fetch(2, 0), forgotten_topics_data=[{"topic_id": topic.id, "partitions": [9]}]
    )
    assert {index: partition.error_code for index, partition in recovered.items()} == {2: Error.NONE}
    assert session.poll() == {}


def test_unknown_topic_id_in_a_session(session: Session) -> None:
    session.poll(partition_to_fetch(0, 4))
    unknown = [{"topic_id": uuid.uuid4(), "partitions": [partition_to_fetch(0)]}]
    for topics in (unknown, []):
        changed = session.poll(topics=topics)
        assert [partition.error_code for partition in changed.values()] == [Error.UNKNOWN_TOPIC_ID]


def test_full_fetch_with_an_id_replaces_that_session(wire: Wire, topic: Topic, session: Session) -> None:
    answer = fetch(wire, topic.id, partition_to_fetch(0, 4), session_id=session.id, session_epoch=0)
    assert answer.error_code == Error.NONE
    assert answer.session_id not in (0, session.id)
    assert session.raw(epoch=1).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_final_epoch_closes_the_session(session: Session) -> None:
    closed = session.raw(epoch=-1)
    assert (closed.error_code, closed.session_id) == (Error.NONE, 0)
    assert session.raw(epoch=1).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_session_is_kept_when_the_client_connects_again(session: Session, connect: Any) -> None:
    session.wire = connect()
    assert session.poll(partition_to_fetch(0, 4)) == {}


def test_session_by_names_cannot_continue_by_ids(wire: Wire, topic: Topic) -> None:
    opened = wire.call(
        "Fetch", 12, replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=0, topics=[{"topic": topic.name, "partitions": [partition_to_fetch()]}],
        forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    assert opened.session_id > 0
    answer = fetch(wire, topic.id, session_id=opened.session_id, session_epoch=1, max_wait_ms=100)
    assert answer.error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR
