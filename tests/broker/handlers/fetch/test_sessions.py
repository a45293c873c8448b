"""KIP-227, from the side of a client."""

from __future__ import annotations

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import Principal
from tidemark.broker.handlers.fetch.sessions import FetchSessions
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData

BY_NAME = 12
BY_ID = 13


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def request(session_id: int, epoch: int, *partitions: tuple[int, int], forget: list[int] | None = None) -> FetchRequest:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=p, fetch_offset=o) for p, o in partitions])]
    gone = [ForgottenTopic(topic="t", partitions=forget)] if forget else []
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=topics if partitions else [], forgotten_topics_data=gone
    )


def offsets(wanted: list) -> dict[int, int]:  # type: ignore[type-arg]
    return {each.index: each.fetch_offset for each in wanted}


def test_a_session_remembers_what_is_not_repeated() -> None:
    sessions = FetchSessions(slots_max=10, time=Clock())
    session, wanted, incremental = sessions.resolve(request(0, 0, (0, 5), (1, 6)), BY_NAME)
    assert session is not None
    assert (offsets(wanted), incremental) == ({0: 5, 1: 6}, False)
    _, wanted, incremental = sessions.resolve(request(session.session_id, 1, (1, 9)), BY_NAME)
    assert (offsets(wanted), incremental) == ({0: 5, 1: 9}, True)
    _, wanted, _ = sessions.resolve(request(session.session_id, 2, (2, 0), forget=[0]), BY_NAME)
    assert offsets(wanted) == {1: 9, 2: 0}


def test_a_wrong_epoch_is_refused_and_changes_nothing() -> None:
    sessions = FetchSessions(slots_max=10, time=Clock())
    session, _, _ = sessions.resolve(request(0, 0, (0, 5)), BY_NAME)
    assert session is not None
    for epoch in (2, 7):
        with pytest.raises(Refused) as refusal:
            sessions.resolve(request(session.session_id, epoch, (0, 100)), BY_NAME)
        assert refusal.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert offsets(sessions.resolve(request(session.session_id, 1), BY_NAME)[1]) == {0: 5}


def test_nobody_else_can_go_on_with_a_session_or_end_it() -> None:
    """Whoever could would learn what somebody reads, or make them begin anew all the time."""
    sessions = FetchSessions(slots_max=10, time=Clock())
    ann, eve = Principal("User", "ann"), Principal("User", "eve")
    session, _, _ = sessions.resolve(request(0, 0, (0, 5)), BY_NAME, ann)
    assert session is not None
    with pytest.raises(Refused) as refusal:
        sessions.resolve(request(session.session_id, 1), BY_NAME, eve)
    assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.resolve(request(session.session_id, -1), BY_NAME, eve) == (None, [], False)
    assert sessions.resolve(request(session.session_id, 0), BY_NAME, eve) == (None, [], False)
    assert offsets(sessions.resolve(request(session.session_id, 1), BY_NAME, Principal("User", "ann"))[1]) == {0: 5}


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(Refused) as refusal:
        FetchSessions(slots_max=10, time=Clock()).resolve(request(77, 3), BY_NAME)
    assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    sessions = FetchSessions(slots_max=10, time=Clock())
    session, _, _ = sessions.resolve(request(0, 0, (0, 5)), BY_NAME)
    assert session is not None
    with pytest.raises(Refused) as refusal:
        sessions.resolve(request(session.session_id, 1), BY_ID)
    assert refusal.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_session() -> None:
    sessions = FetchSessions(slots_max=10, time=Clock())
    session, _, _ = sessions.resolve(request(0, 0, (0, 5)), BY_NAME)
    assert session is not None
    closed, wanted, _ = sessions.resolve(request(session.session_id, -1, (3, 3)), BY_NAME)
    assert (closed, offsets(wanted), len(sessions)) == (None, {3: 3}, 0)


def test_a_full_cache_serves_without_a_session_until_one_is_idle() -> None:
    clock = Clock()
    sessions = FetchSessions(slots_max=1, evict_after_seconds=120, time=clock)
    first, _, _ = sessions.resolve(request(0, 0, (0, 0)), BY_NAME)
    assert sessions.resolve(request(0, 0, (0, 0)), BY_NAME)[0] is None
    clock.now = 121
    second, _, _ = sessions.resolve(request(0, 0, (0, 0)), BY_NAME)
    assert first is not None
    assert second is not None
    assert len(sessions) == 1


def test_an_incremental_answer_tells_only_news() -> None:
    sessions = FetchSessions(slots_max=1, time=Clock())
    _, [wanted], _ = sessions.resolve(request(0, 0, (0, 0)), BY_NAME)
    same = PartitionData(high_watermark=5, log_start_offset=0)
    assert wanted.has_news(same)
    assert not wanted.has_news(same)
    assert wanted.has_news(PartitionData(high_watermark=6, log_start_offset=0))
    assert wanted.has_news(PartitionData(high_watermark=6, log_start_offset=2))
    assert wanted.has_news(PartitionData(high_watermark=6, log_start_offset=2, records=b"data"))
    assert wanted.has_news(PartitionData(error_code=3, high_watermark=-1))
    assert wanted.has_news(PartitionData(high_watermark=6, log_start_offset=2))


def test_who_got_data_is_read_last_next_time() -> None:
    sessions = FetchSessions(slots_max=1, time=Clock())
    session, wanted, _ = sessions.resolve(request(0, 0, (0, 0), (1, 0), (2, 0)), BY_NAME)
    assert session is not None
    session.rotate([wanted[0]])
    assert [each.index for each in sessions.resolve(request(session.session_id, 1), BY_NAME)[1]] == [1, 2, 0]


def test_the_epoch_wraps_to_one() -> None:
    sessions = FetchSessions(slots_max=1, time=Clock())
    session, _, _ = sessions.resolve(request(0, 0, (0, 0)), BY_NAME)
    assert session is not None
    session.epoch.expected = 0x7FFFFFFF
    sessions.resolve(request(session.session_id, 0x7FFFFFFF), BY_NAME)
    assert session.epoch.expected == 1


def test_sessions_are_bounded_by_all_their_partitions_together() -> None:
    clock = Clock()
    sessions = FetchSessions(slots_max=100, partitions_max=10, time=clock)
    first, _, _ = sessions.resolve(request(0, 0, *((each, 0) for each in range(6))), BY_NAME)
    assert first is not None
    second, wanted, _ = sessions.resolve(request(0, 0, *((each, 0) for each in range(6))), BY_NAME)
    assert (second, len(wanted)) == (None, 6), "answered in full, without a session"
    clock.now = 121
    second, _, _ = sessions.resolve(request(0, 0, *((each, 0) for each in range(6))), BY_NAME)
    assert second is not None, "one that was not used for long makes room"
    assert len(sessions) == 1


def test_a_session_cannot_grow_beyond_the_bound() -> None:
    sessions = FetchSessions(slots_max=100, partitions_max=10, time=Clock())
    session, _, _ = sessions.resolve(request(0, 0, (0, 0)), BY_NAME)
    assert session is not None
    with pytest.raises(Refused) as refused:
        sessions.resolve(request(session.session_id, 1, *((each, 0) for each in range(1, 12))), BY_NAME)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    assert sessions.resolve(request(0, 0, (0, 0)), BY_NAME)[0] is not None, "what it held is free again"
