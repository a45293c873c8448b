from typing import Any

import pytest

from tidemark.broker.core.deferred import Deferred
from tidemark.protocol.errors import ErrorCode


def test_everybody_gets_what_the_leader_assigned(driver: Any, answer: Any) -> None:
    one, two = driver.stable(2)
    assert driver.group.state_name == "Stable"
    assert bytes(driver.sync(one, driver.group.generation).assignment) == b"0"
    assert bytes(driver.sync(two, driver.group.generation).assignment) == b"1"


def test_a_follower_waits_for_the_leader(driver: Any, answer: Any) -> None:
    leader = driver.join()
    other = driver.join()
    leader = driver.join(leader.member_id)
    member = answer(other)
    waiting = driver.sync(member.member_id, 2)
    assert isinstance(waiting, Deferred)
    driver.sync(leader.member_id, 2, {member.member_id: b"share"})
    assert bytes(answer(waiting).assignment) == b"share"
    assert bytes(driver.sync(leader.member_id, 2).assignment) == b""  # it forgot itself


def test_an_assignment_for_an_unknown_member_is_left_out(driver: Any) -> None:
    joined = driver.join()
    driver.sync(joined.member_id, 1, {joined.member_id: b"mine", "nobody": b"other"})
    assert list(driver.group.members) == [joined.member_id]


@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "protocol", "code"),
    [
        ("nobody", 1, None, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, None, None, ErrorCode.ILLEGAL_GENERATION),
        (None, 2, None, None, ErrorCode.ILLEGAL_GENERATION),
        (None, 1, "i", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, None, "roundrobin", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_that_does_not_fit_changes_nothing(
    driver: Any, member_id: str | None, generation: int, instance_id: str | None, protocol: str | None, code: ErrorCode
) -> None:
    joined = driver.join()
    member_id = joined.member_id if member_id is None else member_id
    assert driver.sync(member_id, generation, instance_id=instance_id, protocol=protocol).error_code == code
    assert driver.group.state_name == "CompletingRebalance"
    assert driver.log == []


def test_a_group_that_is_not_there_is_not_made(driver: Any) -> None:
    assert driver.sync("x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(("x", None)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.shard.groups == {}


def test_who_waits_for_an_assignment_hears_of_the_next_rebalance(driver: Any, answer: Any) -> None:
    leader = driver.join()
    other = driver.join()
    driver.join(leader.member_id)
    waiting = driver.sync(answer(other).member_id, 2)
    driver.join()
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_removed(driver: Any) -> None:
    joined = driver.join(session_ms=1_000_000, rebalance_ms=20_000)
    driver.advance(19_999)
    assert joined.member_id in driver.group.members
    driver.advance(1)
    assert driver.group.state_name == "Empty"


def test_a_failed_append_leaves_everybody_waiting_for_the_next_try(driver: Any, answer: Any) -> None:
    leader = driver.join()
    other = driver.join()
    driver.join(leader.member_id)
    waiting = driver.sync(answer(other).member_id, 2)
    driver.fails = True
    refused = driver.sync(leader.member_id, 2, {leader.member_id: b"x"})
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not waiting.done
    assert driver.group.state_name == "CompletingRebalance"
    driver.fails = False
    assert driver.sync(leader.member_id, 2, {leader.member_id: b"x"}).error_code == 0
    assert waiting.done


def test_a_restarted_broker_knows_generation_members_and_assignments(driver: Any) -> None:
    one, two = driver.stable(2)
    generation = driver.group.generation
    driver.restart()
    assert driver.heartbeat(one, generation) == ErrorCode.NONE
    assert bytes(driver.sync(two, generation).assignment) == b"1"
    assert driver.group.leader == one
