from __future__ import annotations

from broker.controller.sessions import Sessions


def test_a_session_lasts_from_the_last_time_its_broker_was_heard() -> None:
    sessions = Sessions(timeout=9.0)
    session = sessions.begin(1, broker_epoch=5, now=100.0)
    sessions.begin(2, broker_epoch=6, now=103.0)
    assert list(sessions.expired([1, 2], 108.9)) == []
    assert list(sessions.expired([1, 2], 109.0)) == [1]
    assert sessions.next_expiry([1, 2]) == 100.0
    session.heard_at = 109.0
    assert list(sessions.expired([1, 2], 112.0)) == [2]
    assert list(sessions.expired([3], 112.0)) == [3]


def test_a_broker_that_only_an_earlier_controller_heard_is_not_surely_alive() -> None:
    sessions = Sessions(timeout=9.0)
    session = sessions.begin(1, broker_epoch=5, now=0.0)
    assert sessions.is_valid(1, 1.0)
    assert not sessions.is_alive(1, 1.0)
    session.is_heard = True
    assert sessions.is_alive(1, 1.0)
    assert not sessions.is_alive(1, 9.0)


def test_nobody_is_unfenced_before_its_own_registration() -> None:
    assert Sessions(timeout=9.0).begin(1, broker_epoch=5, now=0.0, unfence_after=3).unfence_after == 5
