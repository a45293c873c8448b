from typing import Any

from tidemark.protocol.errors import ErrorCode


def test_the_others_rebalance_when_one_leaves(driver: Any) -> None:
    one, two = driver.stable(2)
    generation = driver.group.generation
    assert driver.leave((two, None)).error_code == 0
    assert driver.heartbeat(one, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(one).generation_id == generation + 1


def test_the_last_one_leaves_an_empty_group_of_the_next_generation(driver: Any) -> None:
    [one] = driver.stable(1)
    driver.leave((one, None))
    assert (driver.group.state_name, driver.group.generation) == ("Empty", 2)
    driver.restart()
    assert (driver.group.state_name, driver.group.generation) == ("Empty", 2)
    assert driver.join().generation_id == 3


def test_when_that_cannot_be_written_the_member_stays(driver: Any) -> None:
    [one] = driver.stable(1)
    driver.fails = True
    assert driver.leave((one, None)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(one, 1) == ErrorCode.NONE


def test_many_leave_at_once_and_each_gets_its_answer(driver: Any) -> None:
    one, two, three = driver.stable(3)
    answers = driver.leave((two, None), ("nobody", None), (three, None), (two, None)).members
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error_code for each in answers] == [0, unknown, 0, unknown]
    assert list(driver.group.members) == [one]


def test_one_that_was_waited_for_ends_the_wait_by_leaving(driver: Any, answer: Any) -> None:
    one, two = driver.stable(2)
    waiting = driver.join(one)
    driver.leave((two, None))
    assert answer(waiting).generation_id == driver.group.generation


def test_a_member_that_waits_to_join_is_told_when_it_is_removed(driver: Any, answer: Any) -> None:
    driver.stable(2)
    told = driver.join(version=4)
    waiting = driver.join(told.member_id, version=4)
    driver.leave((told.member_id, None))
    assert answer(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_can_be_returned(driver: Any) -> None:
    told = driver.join(version=4)
    assert driver.leave((told.member_id, None)).members[0].error_code == 0
    assert driver.join(told.member_id, version=4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
