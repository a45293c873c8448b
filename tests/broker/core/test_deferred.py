"""Answers that come later: told once, and never at the expense of whoever completes them."""

from __future__ import annotations

import pytest

from tidemark.broker.core.deferred import Deferred, awaited, mapped


def broken(_value: object) -> None:
    raise RuntimeError("a bug")


def test_a_listener_is_told_once_whether_it_came_before_or_after_the_value() -> None:
    before: Deferred[int] = Deferred()
    after: Deferred[int] = Deferred()
    told: list[int] = []
    before.then(told.append)
    for value in (1, 2):
        before.resolve(value)
        after.resolve(value)
    after.then(told.append)
    assert told == [1, 1]


def test_a_listener_that_raises_does_not_reach_whoever_completes(caplog: pytest.LogCaptureFixture) -> None:
    deferred: Deferred[int] = Deferred()
    deferred.then(broken)
    deferred.resolve(1)
    assert "a bug" in caplog.text


def test_a_listener_that_comes_late_and_raises_is_told_of_it() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.resolve(1)
    failures: list[Exception] = []
    deferred.then(broken, failures.append)
    assert [str(each) for each in failures] == ["a bug"]


@pytest.mark.parametrize("early", [True, False])
def test_a_failure_is_told_instead_of_a_value(early: bool) -> None:
    deferred: Deferred[int] = Deferred()
    told: list[int] = []
    failures: list[Exception] = []
    if early:
        deferred.fail(ValueError("no"))
    deferred.then(told.append, failures.append)
    deferred.fail(ValueError("no"))
    deferred.resolve(1)
    assert not told
    assert [str(each) for each in failures] == ["no"]


async def test_what_fails_on_the_way_fails_what_was_to_be_made_of_it() -> None:
    deferred: Deferred[int] = Deferred()

    def inverse(value: int) -> int:
        return 1 // value

    changed = mapped(mapped(deferred, inverse), inverse)
    deferred.resolve(0)
    with pytest.raises(ZeroDivisionError):
        await awaited(changed)
