"""Requests about very many partitions of a group: a decision for some of them after the other, so that no other client
waits for all. There is one answer, which leaves when all parts have theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final, TypeVar

from tidemark.broker.core.deferred import CombinedAnswer, MaybeDeferred, mapped
from tidemark.broker.core.sliced_work import Job

PARTITIONS_AT_ONCE_MAX: Final = 500

Request = TypeVar("Request", bound=Any)
Response = TypeVar("Response", bound=Any)


def is_large(request: Any) -> bool:
    return sum(len(topic.partitions) or 1 for topic in request.topics) > PARTITIONS_AT_ONCE_MAX


def in_parts(request: Request, answer: Callable[[Request], MaybeDeferred[Response]]) -> Job[MaybeDeferred[Response]]:
    """`answer` is called for requests like this one, of fewer partitions each."""
    answers: list[Response] = []
    whole = CombinedAnswer(answers)
    for part in _parts(request):
        place = len(answers)
        answers.append(None)  # type: ignore[arg-type]  # until it is there
        whole.add(answer(part), lambda response, place=place: answers.__setitem__(place, response))  # type: ignore[misc]
        yield
    return mapped(whole.answer(), _merged)


def _parts(request: Request) -> Iterator[Request]:
    part, room = _without_topics(request), PARTITIONS_AT_ONCE_MAX
    for topic in request.topics:
        start = 0
        while True:
            piece = copy(topic)
            piece.partitions = topic.partitions[start : start + room]
            part.topics.append(piece)
            room -= len(piece.partitions) or 1
            start += len(piece.partitions)
            if room <= 0:
                yield part
                part, room = _without_topics(request), PARTITIONS_AT_ONCE_MAX
            if start >= len(topic.partitions):
                break
    if part.topics:
        yield part


def _without_topics(request: Request) -> Request:
    part = copy(request)
    part.topics = []
    return part


def _merged(answers: list[Response]) -> Response:
    """A topic that was divided is in the answer once. The first error of a whole part is the answer's."""
    whole = answers[0]
    for answer in answers[1:]:
        topics = answer.topics
        if topics and whole.topics and _same_topic(whole.topics[-1], topics[0]):
            whole.topics[-1].partitions += topics[0].partitions
            topics = topics[1:]
        whole.topics += topics
        if getattr(answer, "error_code", 0):
            whole.error_code = whole.error_code or answer.error_code
    return whole


def _same_topic(one: Any, other: Any) -> bool:
    return one.name == other.name and getattr(one, "topic_id", None) == getattr(other, "topic_id", None)
