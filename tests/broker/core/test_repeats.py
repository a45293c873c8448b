"""Finding what is named twice."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.core.repeats import AT_ONCE, find_repeated, repeated
from tidemark.broker.core.sliced_work import at_once


@given(st.lists(st.sampled_from(["", "a", "b", "c", "d"])))
def test_a_job_finds_what_is_found_at_once(items: list[str]) -> None:
    assert at_once(find_repeated(items)) == repeated(items)


def test_what_is_repeated_among_very_many_is_found() -> None:
    assert at_once(find_repeated([*range(10 * AT_ONCE), *range(0, AT_ONCE, 7)])) == set(range(0, AT_ONCE, 7))


def test_it_can_be_interrupted_while_it_looks_and_while_it_forgets() -> None:
    looked_at = 0

    def many() -> Iterator[int]:
        nonlocal looked_at
        for number in range(10 * AT_ONCE):
            looked_at += 1
            yield number % (9 * AT_ONCE)

    seen = [looked_at for _ in find_repeated(many())]
    assert seen[:10] == [AT_ONCE * step for step in range(1, 11)]
    assert len(seen) > 10
