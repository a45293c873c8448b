"""Long JSON, in slices: the same values and texts as the standard library's, and never much of it at once."""

import gc
import json
import random
import time
from typing import Any

import pytest

from tidemark.broker.core.sliced_work import Job, at_once
from tidemark.broker.http import sliced_json
from tidemark.broker.http.sliced_json import BRACKETS_MAX, parsed, written

STEP_SECONDS_MAX = 0.02


def value_of(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(8 if depth < 6 else 6)
    if kind == 6:
        return [value_of(chance, depth + 1) for _ in range(chance.randrange(6))]
    if kind == 7:
        return {chance.choice('abcdé\n"') * chance.randrange(4): value_of(chance, depth + 1) for _ in range(4)}
    return (None, True, chance.random() * 1e9, chance.randrange(-9, 10**20), 'x]}\\"ü' * chance.randrange(5), "")[kind]


@pytest.mark.parametrize("seed", range(30))
def test_it_reads_and_writes_what_the_standard_library_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_json, "WINDOW_CHARS", 20)
    monkeypatch.setattr(sliced_json, "BRACKETS_MAX", 2)
    monkeypatch.setattr(sliced_json, "NODES_MAX", 4)
    monkeypatch.setattr(sliced_json, "DEPTH_MAX", 100)
    chance = random.Random(seed)
    value = [value_of(chance, 0) for _ in range(20)]
    text = json.dumps(value, indent=chance.choice([None, 1]), ensure_ascii=chance.random() < 0.5)
    assert at_once(parsed(text)) == value
    assert at_once(written(value)) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for _ in range(50):  # whatever is broken is refused by both, or read alike
        at = chance.randrange(len(text))
        broken = text[:at] + chance.choice(['"', ",", "]", "}", "", "\\", ":", "1"]) + text[at + 1 :]
        try:
            expected = json.loads(broken)
        except ValueError:
            with pytest.raises(ValueError, match=r"."):
                at_once(parsed(broken))
        else:
            assert at_once(parsed(broken)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * 60_000 + "[]]",
        '{"value": {' + ",".join(f'"{n}": {{}}' for n in range(20_000)) + "}}",
        '{"a": [' + ",".join("[" + ",".join(["1"] * 20_000) + "]" for _ in range(3)) + "]}",
    ],
    ids=["a wide array", "a wide object", "arrays"],
)
def test_no_step_takes_long(text: str) -> None:
    value, longest = _longest_step(parsed(text))
    assert value == json.loads(text)
    again, longest_written = _longest_step(written(value))
    assert again == json.dumps(value, separators=(",", ":"))
    assert max(longest, longest_written) < STEP_SECONDS_MAX


@pytest.mark.parametrize(
    "text", ["[" * 500_000, '{"value":' * 100_000, "[" + "1," * 100_000, '{"a": ' + "9" * 1_000_000]
)
def test_what_is_too_deep_or_has_no_end_is_refused_soon(text: str) -> None:
    began = time.thread_time()
    with pytest.raises((ValueError, RecursionError)):
        at_once(parsed(text))
    assert time.thread_time() - began < 2


def _longest_step(job: Any) -> tuple[Any, float]:
    longest = 0.0
    gc.collect()
    gc.freeze()  # as a broker has it: a collection looks through what is new
    while True:
        began = time.thread_time()
        try:
            next(job)
        except StopIteration as stop:
            gc.unfreeze()
            return stop.value, longest
        finally:
            longest = max(longest, time.thread_time() - began)


@pytest.mark.parametrize("text", ["[" + ",".join(["[[[[]]]]"] * 20_000) + "]", json.dumps([{}, {"a": {}}] * 20_000)])
def test_a_text_of_brackets_is_read_in_smaller_steps(text: str) -> None:
    """Of 16 KB, with thousands of arrays in them, each step would take 2 ms."""
    steps = 0

    def counted() -> Job[object]:
        nonlocal steps
        job = parsed(text)
        while True:
            try:
                next(job)
            except StopIteration as stop:
                return stop.value
            steps += 1
            yield

    assert at_once(counted()) == json.loads(text)
    assert steps >= (text.count("[") + text.count("{")) // (2 * BRACKETS_MAX)
