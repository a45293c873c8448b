from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from tidemark.broker.core.deferred import CombinedAnswer, Deferred, MaybeDeferred, awaited, chained, mapped


def broken(_value: object) -> None:
    raise RuntimeError("a bug")


def test_the_first_to_resolve_wins_and_the_listener_is_told_once() -> None:
    deferred: Deferred[int] = Deferred()
    told: list[int] = []
    deferred.then(told.append)
    deferred.resolve(1)
    deferred.resolve(2)
    assert told == [1]


def test_a_listener_that_comes_after_the_value_is_told_at_once() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.resolve(1)
    told: list[int] = []
    deferred.then(told.append)
    assert told == [1]


def test_a_value_is_changed_now_or_when_it_is_there() -> None:
    assert mapped(1, str) == "1"
    deferred: Deferred[int] = Deferred()
    changed = mapped(deferred, str)
    assert isinstance(changed, Deferred)
    told: list[str] = []
    changed.then(told.append)
    deferred.resolve(2)
    assert told == ["2"]


def test_what_follows_a_value_may_be_deferred_itself() -> None:
    first: Deferred[int] = Deferred()
    second: Deferred[str] = Deferred()

    def go_on(_value: int) -> MaybeDeferred[str]:
        return second

    answer = chained(first, go_on)
    assert isinstance(answer, Deferred)
    told: list[str] = []
    answer.then(told.append)
    first.resolve(1)
    assert told == []
    second.resolve("done")
    assert told == ["done"]
    assert chained(1, str) == "1"


def test_a_coroutine_can_wait_for_it() -> None:
    async def wait() -> int:
        deferred: Deferred[int] = Deferred()
        asyncio.get_running_loop().call_soon(deferred.resolve, 7)
        return await awaited(deferred)

    assert asyncio.run(wait()) == 7


def test_an_answer_leaves_with_its_last_part() -> None:
    parts: list[int] = []
    combined = CombinedAnswer(parts)
    missing: Deferred[int] = Deferred()
    combined.add(1, parts.append)
    combined.add(missing, parts.append)
    answer = combined.answer()
    assert isinstance(answer, Deferred)
    told: list[list[int]] = []
    answer.then(told.append)
    assert told == []
    missing.resolve(2)
    assert told == [[1, 2]]


def test_an_answer_without_a_deferred_part_is_there_at_once() -> None:
    parts: list[int] = []
    combined = CombinedAnswer(parts)
    combined.add(1, parts.append)
    assert combined.answer() is parts


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


@pytest.mark.parametrize("ends_with", ["resolve", "fail"])
def test_what_waited_is_free_as_soon_as_it_has_its_answer(ends_with: str) -> None:
    """A request that waited long has survived the collector's younger generations: a cycle would keep it for hours."""

    class Request:
        def __init__(self) -> None:
            self.deferred: Deferred[int | Exception] = Deferred()
            self.deferred.then(lambda _: self.answered(), lambda _: self.answered())
            self.answers = 0

        def answered(self) -> None:
            self.answers += 1

    gc.disable()
    try:
        request = Request()
        getattr(request.deferred, ends_with)(ValueError("an answer, or why there is none"))
        assert request.answers == 1
        gone = weakref.ref(request)
        del request
        assert gone() is None
    finally:
        gc.enable()
