from typing import Any

from tidemark.protocol.errors import ErrorCode


def test_a_silent_member_is_gone_when_its_session_ends(driver: Any) -> None:
    one, two = driver.stable(2, session_ms=10_000)
    generation = driver.group.generation
    driver.advance(9_000)
    assert driver.heartbeat(one, generation) == ErrorCode.NONE
    driver.advance(1_000)
    assert driver.heartbeat(one, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(driver.group.members) == [one]
    assert driver.heartbeat(two, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_session_for_ever_and_set_few_alarms(driver: Any) -> None:
    [one] = driver.stable(1, session_ms=10_000)
    driver.advance(25_000 - 25_000 % 10_000 - 11_000)  # past the end of syncing
    before = len(driver.shard.timers._heap)
    for _ in range(1_000):
        driver.advance(500)
        assert driver.heartbeat(one, 1) == ErrorCode.NONE
    assert len(driver.shard.timers._heap) <= before + 1


def test_a_commit_is_a_sign_of_life(driver: Any) -> None:
    [one] = driver.stable(1, session_ms=10_000)
    for offset in range(10):
        driver.advance(6_000)
        assert driver.commit(offset, member_id=one, generation=1) == ErrorCode.NONE


def test_the_last_silent_member_leaves_an_empty_group(driver: Any) -> None:
    driver.stable(1)
    driver.advance(10_000)
    assert driver.group.state_name == "Empty"
    driver.restart()
    assert driver.group.state_name == "Empty"


def test_when_that_cannot_be_written_it_is_tried_again(driver: Any) -> None:
    driver.stable(1)
    driver.fails = True
    driver.advance(10_000)
    assert driver.group.state_name == "Stable"
    driver.fails = False
    driver.advance(1_000)
    assert driver.group.state_name == "Empty"


def test_sessions_start_anew_with_the_broker(driver: Any) -> None:
    [one] = driver.stable(1)
    driver.now_ms += 1_000_000
    driver.restart()
    driver.advance(9_999)
    assert driver.heartbeat(one, 1) == ErrorCode.NONE
    driver.advance(10_000)
    assert driver.heartbeat(one, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_generation_of_a_heartbeat_must_be_right(driver: Any) -> None:
    [one] = driver.stable(1)
    assert driver.heartbeat(one, 0) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(one, 2) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(one, 1, instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
