from typing import Any

import pytest

from tidemark.broker.core.deferred import Deferred
from tidemark.protocol.errors import ErrorCode


def test_the_first_member_leads_the_first_generation(driver: Any) -> None:
    joined = driver.join()
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert joined.member_id.startswith("client-")


def test_a_new_member_comes_back_with_the_id_it_is_given(driver: Any) -> None:
    told = driver.join(version=4)
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert driver.join(told.member_id, version=4).generation_id == 1


def test_a_member_that_nobody_knows_is_refused(driver: Any) -> None:
    assert driver.join("nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.shard.groups == {}
    driver.join()
    assert driver.join("nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_in_time_is_forgotten(driver: Any) -> None:
    told = driver.join(version=4, session_ms=10_000)
    driver.advance(10_000)
    assert driver.join(told.member_id, version=4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_initial_delay_gathers_members_into_one_generation(make_driver: Any, answer: Any) -> None:
    driver = make_driver(group_initial_rebalance_delay_ms=3_000)
    first = driver.join()
    driver.advance(2_999)
    second = driver.join()
    assert not first.done
    driver.advance(1)  # the second bought the third some time
    third = driver.join()
    driver.advance(2_999)
    assert not first.done
    driver.advance(3_001)
    assert [answer(each).generation_id for each in (first, second, third)] == [1, 1, 1]
    assert len(answer(first).members) == 3


def test_the_initial_delay_ends_with_the_rebalance_time_out(make_driver: Any) -> None:
    driver = make_driver(group_initial_rebalance_delay_ms=3_000)
    first = driver.join(rebalance_ms=10_000)
    for _ in range(12):
        driver.advance(1_000)
        driver.join(rebalance_ms=10_000)
    assert first.done


def test_without_a_delay_a_member_waits_for_others_that_are_on_their_way(driver: Any, answer: Any) -> None:
    driver.recent_lookups = 2
    first = driver.join()
    driver.advance(80)
    second = driver.join()
    driver.advance(30)  # the second bought a third some time
    assert not first.done
    driver.advance(200)
    assert [answer(each).generation_id for each in (first, second)] == [1, 1]


def test_without_a_delay_a_member_waits_for_others_that_were_given_their_ids(driver: Any, answer: Any) -> None:
    told = [driver.join(version=4).member_id for _ in range(2)]
    first = driver.join(told[0], version=4)
    assert not first.done
    driver.join(told[1], version=4)
    driver.advance(200)
    assert len(answer(first).members) == 2


def test_without_a_delay_nobody_waits_long_for_others_that_do_not_come(driver: Any) -> None:
    driver.recent_lookups = 5
    first = driver.join()
    driver.advance(100)
    assert first.done


def test_without_a_delay_a_stream_of_newcomers_is_not_waited_for(driver: Any) -> None:
    driver.recent_lookups = 2
    first = driver.join()
    for _ in range(20):
        driver.advance(50)
        driver.join()
    assert first.done


def test_a_rebalance_waits_for_all_members(driver: Any, answer: Any) -> None:
    [one] = driver.stable(1)
    second = driver.join()
    assert isinstance(second, Deferred)
    assert driver.heartbeat(one, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(one).generation_id == 2
    assert answer(second).generation_id == 2


def test_a_rebalance_goes_on_without_those_who_do_not_come_back(driver: Any, answer: Any) -> None:
    one, two = driver.stable(2)
    third = driver.join(rebalance_ms=20_000)
    driver.join(one)
    for _ in range(4):
        driver.advance(5_000)
        driver.heartbeat(two, 2)  # alive, but busy
    assert {member.member_id for member in driver.group.members.values()} == {one, answer(third).member_id}


def test_a_follower_that_asks_again_gets_the_generation_as_it_is(driver: Any) -> None:
    one, two = driver.stable(2)
    again = driver.join(two)
    assert (again.generation_id, again.leader, again.members) == (driver.group.generation, one, [])
    assert driver.group.state_name == "Stable"


def test_a_leader_that_asks_again_starts_a_rebalance(driver: Any) -> None:
    one, _ = driver.stable(2)
    assert isinstance(driver.join(one), Deferred)
    assert driver.group.state_name == "PreparingRebalance"


def test_a_change_of_subscription_starts_a_rebalance(driver: Any, subscribed: Any) -> None:
    _, two = driver.stable(2)
    assert isinstance(driver.join(two, protocols={"range": subscribed("t", "u")}), Deferred)


def test_the_protocol_is_the_one_most_members_prefer_of_those_all_know(driver: Any, answer: Any) -> None:
    first = driver.join(protocols={"a": b"", "b": b""})
    second = driver.join(protocols={"b": b"", "a": b""})
    third = driver.join(protocols={"c": b"", "b": b"", "a": b""})
    joined = driver.join(first.member_id, protocols={"a": b"", "b": b""})
    assert joined.protocol_name == "b"
    assert answer(second).protocol_name == answer(third).protocol_name == "b"


@pytest.mark.parametrize(
    "how",
    [
        {"protocols": {"other": b""}},
        {"protocol_type": "connect"},
        {"protocols": {}},
        {"protocol_type": ""},
    ],
)
def test_a_member_that_shares_no_protocol_is_refused(driver: Any, how: dict[str, Any]) -> None:
    driver.stable(1)
    assert driver.join(**how).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.state_name == "Stable"


def test_a_group_without_any_protocol_is_not_begun(driver: Any) -> None:
    assert driver.join(protocols={}).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.shard.groups == {}


def test_a_full_group_refuses_more_and_keeps_those_it_has(make_driver: Any) -> None:
    driver = make_driver(group_max_size=2)
    _, two = driver.stable(2)
    refused = driver.join()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert driver.join(two).error_code == 0


def test_a_repeated_request_takes_the_place_of_the_first(driver: Any, answer: Any) -> None:
    one, two = driver.stable(2)
    driver.join()
    first = driver.join(two)
    second = driver.join(two)
    assert answer(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(one)
    assert answer(second).error_code == 0


def test_a_new_member_that_never_hears_its_id_is_given_up(driver: Any, answer: Any) -> None:
    [one] = driver.stable(1, rebalance_ms=1_000_000)
    lost = driver.join(rebalance_ms=1_000_000)
    driver.advance(9_000)
    for _ in range(60):
        driver.heartbeat(one, 1)
        driver.advance(5_000)
    assert answer(lost).error_code == ErrorCode.UNKNOWN_MEMBER_ID
