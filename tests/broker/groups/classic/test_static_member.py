from typing import Any

from tidemark.broker.core.deferred import Deferred
from tidemark.protocol.errors import ErrorCode


def stable_static(driver: Any, answer: Any, version: int = 9) -> tuple[str, str]:
    """A leader `a` and a follower `b`, both static."""
    leader = driver.join(instance_id="a", version=version)
    other = driver.join(instance_id="b", version=version)
    driver.join(leader.member_id, instance_id="a", version=version)
    member = answer(other)
    driver.sync(member.member_id, 2, instance_id="b")
    shares = {leader.member_id: b"A", member.member_id: b"B"}
    driver.sync(leader.member_id, 2, shares, instance_id="a")
    return leader.member_id, member.member_id


def test_a_restarted_member_keeps_its_assignment_without_a_rebalance(driver: Any, answer: Any) -> None:
    one, _ = stable_static(driver, answer)
    again = driver.join(instance_id="b", version=9)
    assert (again.error_code, again.generation_id, again.leader) == (0, 2, one)
    assert bytes(driver.sync(again.member_id, 2, instance_id="b").assignment) == b"B"
    assert driver.group.state_name == "Stable"
    assert driver.heartbeat(one, 2, instance_id="a") == ErrorCode.NONE


def test_the_former_self_is_fenced(driver: Any, answer: Any) -> None:
    _, two = stable_static(driver, answer)
    driver.join(instance_id="b", version=9)
    assert driver.heartbeat(two, 2, instance_id="b") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(two, 2, instance_id="b").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.join(two, instance_id="b").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.commit(1, member_id=two, generation=2, instance_id="b") == ErrorCode.FENCED_INSTANCE_ID
    [left] = driver.leave((two, "b")).members
    assert left.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(two, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restarted_leader_is_told_to_skip_the_assignment(driver: Any, answer: Any) -> None:
    stable_static(driver, answer)
    again = driver.join(instance_id="a", version=9)
    assert (again.leader, again.skip_assignment, len(again.members)) == (again.member_id, True, 2)
    assert bytes(driver.sync(again.member_id, 2, instance_id="a").assignment) == b"A"


def test_an_older_restarted_leader_is_told_that_it_does_not_lead(driver: Any, answer: Any) -> None:
    one, _ = stable_static(driver, answer, version=8)
    again = driver.join(instance_id="a", version=8)
    assert (again.leader, again.members) == (one, [])
    assert driver.group.leader == again.member_id


def test_the_new_id_survives_a_crash_of_the_broker(driver: Any, answer: Any) -> None:
    _, two = stable_static(driver, answer)
    again = driver.join(instance_id="b", version=9)
    driver.restart()
    assert driver.heartbeat(again.member_id, 2, instance_id="b") == ErrorCode.NONE
    assert driver.heartbeat(two, 2, instance_id="b") == ErrorCode.FENCED_INSTANCE_ID


def test_when_the_new_id_cannot_be_written_the_old_one_stays(driver: Any, answer: Any) -> None:
    _, two = stable_static(driver, answer)
    driver.fails = True
    assert driver.join(instance_id="b", version=9).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(two, 2, instance_id="b") == ErrorCode.NONE


def test_a_restart_with_another_protocol_is_a_rebalance(driver: Any, subscribed: Any) -> None:
    both = {"range": subscribed("t"), "roundrobin": subscribed("t")}
    joined = driver.join(instance_id="a", protocols=both)
    driver.sync(joined.member_id, 1, {joined.member_id: b"A"}, instance_id="a")
    again = driver.join(instance_id="a", protocols={"roundrobin": subscribed("t")})
    assert again.generation_id == 2
    assert again.protocol_name == "roundrobin"


def test_a_static_member_is_waited_for_until_its_session_ends(driver: Any, answer: Any) -> None:
    one, two = stable_static(driver, answer)
    waiting = driver.join(one, instance_id="a")
    driver.advance(9_999)
    assert isinstance(waiting, Deferred)
    assert not waiting.done
    driver.advance(1)
    assert answer(waiting).generation_id == 3
    assert list(driver.group.members) == [one]
    assert driver.heartbeat(two, 2, instance_id="b") == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_member_by_its_instance(driver: Any, answer: Any) -> None:
    _, two = stable_static(driver, answer)
    answers = driver.leave(("", "b"), ("", "nobody"), ("", None)).members
    assert [each.error_code for each in answers] == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert two not in driver.group.members
    assert driver.group.state_name == "PreparingRebalance"


def test_static_members_that_die_while_a_generation_forms_do_not_stay_for_ever(driver: Any, answer: Any) -> None:
    leader = driver.join(instance_id="a", version=9)
    other = driver.join(instance_id="b", version=9)
    driver.join(leader.member_id, instance_id="a", version=9)
    waiting = driver.sync(answer(other).member_id, 2, instance_id="b")
    driver.advance(10_000)  # the leader's session ends, and the look after the other finds it waiting
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(60_000)
    assert driver.group.state_name == "Empty"
