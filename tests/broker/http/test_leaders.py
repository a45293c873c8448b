"""What a leader refuses, and how it is told to an HTTP client."""

from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.http.leaders import Leaders
from tidemark.protocol.errors import ErrorCode

KNOWN = SimpleNamespace(image=SimpleNamespace(topics={"t": SimpleNamespace(partitions=[SimpleNamespace(leader=2)])}))


@pytest.fixture
def leaders() -> Leaders:
    store: Any = KNOWN
    calls: Any = None
    return Leaders(store, calls)


def test_a_leader_that_has_not_heard_of_its_partition_yet_is_no_proof_that_there_is_none(leaders: Leaders) -> None:
    """A node that has just been started again leads by the metadata of others before it knows: clients would take 404
    as final."""
    problem = leaders.refusal_by_leader("t", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (problem.status, problem.error) == (503, "LEADER_NOT_AVAILABLE")


@pytest.mark.parametrize(("topic", "partition"), [("gone", 0), ("t", 1)])
def test_what_the_metadata_here_does_not_know_either_is_not_there(leaders: Leaders, topic: str, partition: int) -> None:
    assert leaders.refusal_by_leader(topic, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).status == 404


def test_other_refusals_are_told_as_they_are(leaders: Leaders) -> None:
    problem = leaders.refusal_by_leader("t", 0, ErrorCode.MESSAGE_TOO_LARGE, "too large")
    assert problem.error == "MESSAGE_TOO_LARGE"
