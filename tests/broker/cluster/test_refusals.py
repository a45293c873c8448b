"""A request that is refused as a whole, however many things it names."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tidemark.broker.cluster.refusals import _IN_EVERY_PLACE, refusal_of
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import find_route
from tidemark.broker.core.sliced_work import at_once
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidemark.protocol.schema import api, fields_of

REFUSAL: Final = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not you.")


def wide(message: type[Any], count: int) -> Any:
    """A message with this many elements in each of its arrays."""
    made = message()
    for name, field in fields_of(message).items():
        if field.kind == "array":
            element: Any = {"string": "n", "int32": 0}[field.of] if isinstance(field.of, str) else wide(field.of, count)
            setattr(made, name, [element] * count)
    return made


def error_codes(message: Any) -> list[int]:
    found = []
    for name, field in fields_of(type(message)).items():
        value = getattr(message, name)
        if name == "error_code":
            found.append(value)
        elif field.kind == "array" and not isinstance(field.of, str):
            found += [code for each in value or () for code in error_codes(each)]
    return found


@pytest.mark.parametrize("request_type", _IN_EVERY_PLACE, ids=lambda each: each.__name__)
def test_every_place_has_the_error(request_type: type[Any]) -> None:
    route = find_route(api(request_type).key)
    assert route is not None
    answer = at_once(refusal_of(wide(request_type, 3), route.response, REFUSAL))
    assert len(error_codes(answer)) >= 1
    assert set(error_codes(answer)) == {REFUSAL.code}


@pytest.mark.parametrize("request_type", _IN_EVERY_PLACE, ids=lambda each: each.__name__)
def test_the_loop_can_go_on_between_any_two_things_that_are_refused(request_type: type[Any]) -> None:
    route = find_route(api(request_type).key)
    assert route is not None
    pauses, job = 0, refusal_of(wide(request_type, 20), route.response, REFUSAL)
    while True:
        try:
            next(job)
        except StopIteration as stop:
            answer = stop.value
            break
        pauses += 1
    assert pauses >= len(error_codes(answer)) - 1  # one error may be the whole answer's


def test_an_answer_with_one_place_has_the_error_and_its_text() -> None:
    answer: Any = at_once(refusal_of(DescribeClusterRequest(), DescribeClusterResponse, REFUSAL))
    assert (answer.error_code, answer.error_message) == (REFUSAL.code, "Not you.")
