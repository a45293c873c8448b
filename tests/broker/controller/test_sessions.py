from __future__ import annotations

from tidemark.broker.controller.sessions import Sessions
from tidemark.broker.core.lease import LeaseTimings

PATIENCE = LeaseTimings(session=9.0)


def test_a_session_lasts_from_the_last_heartbeat_while_there_are_other_signs_of_life() -> None:
    sessions = Sessions(PATIENCE)
    session = sessions.begin(1, broker_epoch=5, now=100.0)
    sessions.begin(2, broker_epoch=6, now=103.0)
    words = {1: 108.8, 2: 108.8}
    assert list(sessions.expired([1, 2], 108.9, words)) == []
    assert list(sessions.expired([1, 2], 109.0, words)) == [1]
    assert sessions.next_expiry([1, 2], words) == 109.0
    session.heard_at = 109.0
    assert list(sessions.expired([1, 2], 112.0, {1: 112.0, 2: 112.0})) == [2]
    assert list(sessions.expired([3], 112.0, {})) == [3]


def test_who_gives_no_sign_of_life_is_gone_after_half_a_session() -> None:
    sessions = Sessions(PATIENCE)
    sessions.begin(1, broker_epoch=5, now=100.0)
    assert list(sessions.expired([1], 104.4, {})) == []
    assert list(sessions.expired([1], 104.5, {})) == [1]
    assert list(sessions.expired([1], 104.5, {1: 101.0})) == []
    assert sessions.next_expiry([1], {1: 101.0}) == 105.5


def test_what_an_earlier_controller_may_have_granted_is_waited_for_and_no_longer() -> None:
    sessions = Sessions(PATIENCE)
    sessions.take_over(1, broker_epoch=5, now=100.0)
    assert list(sessions.expired([1], 100.0 + PATIENCE.lease - 0.01, {})) == []
    assert list(sessions.expired([1], 100.0 + PATIENCE.lease, {})) == [1]


def test_a_broker_that_only_an_earlier_controller_heard_is_not_surely_alive() -> None:
    sessions = Sessions(PATIENCE)
    session = sessions.begin(1, broker_epoch=5, now=0.0)
    assert not sessions.is_alive(1, 1.0)
    session.is_heard = True
    assert sessions.is_alive(1, 1.0)
    assert not sessions.is_alive(1, 9.0)


def test_nobody_is_unfenced_before_its_own_registration() -> None:
    assert Sessions(PATIENCE).begin(1, broker_epoch=5, now=0.0, unfence_after=3).unfence_after == 5
