from __future__ import annotations

import pytest

from tidemark.broker.groups.consumer.member import MemberState
from tidemark.broker.groups.offset_commit import commit as commit_offsets
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def test_a_lone_member_gets_everything(coordinator):
    answer = coordinator.join("a", "t", "u")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2)
    assert coordinator.share(answer) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    assert coordinator.group.state_name == "Stable"


def test_a_heartbeat_without_news_writes_nothing_and_repeats_no_assignment(coordinator):
    coordinator.join("a")
    written = len(coordinator.log)
    answer = coordinator.beat("a", 2)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)
    assert len(coordinator.log) == written


def test_a_full_heartbeat_is_told_its_assignment_again(coordinator):
    coordinator.join("a")
    answer = coordinator.beat(
        "a", 2, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], owned={"t": [0, 1, 2, 3]}
    )
    assert coordinator.share(answer) == {"t": [0, 1, 2, 3]}


def test_a_partition_goes_to_a_joiner_only_after_its_owner_gave_it_up(coordinator):
    coordinator.join("a")
    joined = coordinator.join("b")
    assert (joined.member_epoch, coordinator.share(joined)) == (3, {})

    told = coordinator.beat("a", 2)
    assert (told.member_epoch, coordinator.share(told)) == (2, {"t": [0, 1]})
    assert coordinator.share(coordinator.beat("b", 3)) is None, "a has not said yet that it gave them up"
    assert coordinator.beat("a", 2, owned={"t": [0, 1, 2, 3]}).member_epoch == 2

    assert coordinator.beat("a", 2, owned={"t": [0, 1]}).member_epoch == 3
    got = coordinator.beat("b", 3)
    assert coordinator.share(got) == {"t": [2, 3]}
    assert coordinator.group.state_name == "Stable"


def test_a_member_that_gives_nothing_up_in_time_is_fenced(coordinator):
    coordinator.join("a")
    coordinator.join("b")
    coordinator.beat("a", 2)
    assert coordinator.group.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(4):
        coordinator.pass_time(20_000)
        last = [coordinator.beat("a", 2), coordinator.beat("b", coordinator.group.state.members["b"].member_epoch)]
    assert last[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.group.state.owners.keys() == {(coordinator.id_of("t"), number) for number in range(4)}


def test_a_silent_member_is_fenced_when_its_session_ends(coordinator):
    coordinator.join("a")
    coordinator.pass_time(44_999)
    assert "a" in coordinator.group.state.members
    coordinator.pass_time(1)
    assert coordinator.group.state_name == "Empty"
    assert coordinator.beat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_session_alive(coordinator):
    coordinator.join("a")
    for _ in range(10):
        coordinator.pass_time(40_000)
        assert coordinator.beat("a", 2).error_code == 0


def test_members_are_heard_of_more_often_while_a_group_is_young_or_waits(coordinator):
    assert coordinator.join("a").heartbeat_interval_ms == 500
    assert coordinator.beat("a", 2).heartbeat_interval_ms == 500
    coordinator.pass_time(5_000)
    assert coordinator.beat("a", 2).heartbeat_interval_ms == 5_000
    assert coordinator.join("b").heartbeat_interval_ms == 500
    assert coordinator.beat("a", 2).heartbeat_interval_ms == 500
    coordinator.pass_time(5_000)
    assert coordinator.beat("b", 3).heartbeat_interval_ms == 500, "a has not given anything up yet"
    assert coordinator.beat("a", 2, owned={"t": [0, 1]}).heartbeat_interval_ms == 5_000


def test_a_group_can_have_its_own_times(coordinator):
    coordinator.configs[32, "g"] = {"consumer.session.timeout.ms": "9000", "consumer.heartbeat.interval.ms": "3000"}
    coordinator.join("a")
    coordinator.pass_time(3_000)
    assert coordinator.beat("a", 2).heartbeat_interval_ms == 3_000
    coordinator.pass_time(9_000)
    assert coordinator.group.is_empty


def test_leaving_frees_everything_at_once(coordinator):
    coordinator.join("a")
    coordinator.join("b")
    left = coordinator.beat("a", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "a", -1)
    assert coordinator.share(coordinator.beat("b", 3)) == {"t": [0, 1, 2, 3]}


# -- epochs ----------------------------------------------------------------


def test_an_epoch_from_the_future_or_the_past_is_fenced(coordinator):
    coordinator.join("a")
    assert coordinator.beat("a", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert coordinator.beat("a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_the_answer_is_told_again_where_it_is(coordinator):
    coordinator.join("a")
    coordinator.beat("a", 2, subscribed_topic_names=["t", "u"])
    member = coordinator.group.state.members["a"]
    assert (member.member_epoch, member.previous_member_epoch) == (3, 2)
    again = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t", "u"]}
    told = coordinator.beat("a", 2, owned={"t": [0, 1, 2, 3]}, **again)
    assert (told.member_epoch, coordinator.share(told)) == (3, {"t": [0, 1, 2, 3], "u": [0, 1]})
    assert coordinator.beat("a", 2, owned={"v": [0]}, **again).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_late_request_of_the_epoch_before_frees_nothing(coordinator):
    coordinator.join("a")
    coordinator.beat("a", 2, subscribed_topic_names=["t", "u"])
    coordinator.join("b")
    coordinator.beat("a", 2, owned={}, rebalance_timeout_ms=60_000, subscribed_topic_names=["t", "u"])
    assert coordinator.share(coordinator.beat("b", 4)) is None
    assert len(coordinator.group.state.members["a"].assigned[coordinator.id_of("t")]) == 4


def test_commits_are_taken_in_the_members_own_epoch_only(coordinator):
    coordinator.join("a")

    def check(member_id: str, epoch: int, version: int = 9) -> ErrorCode:
        return coordinator.group.check_commit(  # type: ignore[no-any-return]
            member_id=member_id, instance_id=None, generation=epoch, version=version, now_ms=coordinator.now_ms
        )

    assert check("a", 2) == ErrorCode.NONE
    assert check("a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert check("b", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert check("", -1) == ErrorCode.UNKNOWN_MEMBER_ID, "an administrator cannot while the group is in use"
    assert check("a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    coordinator.beat("a", -1)
    assert check("", -1) == ErrorCode.NONE


def test_a_commit_of_an_older_epoch_is_taken_for_what_the_member_has_held_since(coordinator):
    """KIP-1251."""
    coordinator.join("a")
    coordinator.join("b")
    coordinator.beat("a", 2)
    coordinator.beat("a", 2, owned={"t": [0, 1]})
    coordinator.beat("b", 3)
    topic_id = coordinator.id_of("t")

    def commit(member_id: str, epoch: int) -> list[int]:
        topic = OffsetCommitRequestTopic(
            topic_id=topic_id, partitions=[OffsetCommitRequestPartition(partition_index=each) for each in range(4)]
        )
        request = OffsetCommitRequest(
            group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch, topics=[topic]
        )
        answer = coordinator.finish(commit_offsets(coordinator.shard, request, version=10, now_ms=coordinator.now_ms))
        return [each.error_code for each in answer.topics[0].partitions]

    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert commit("a", 2) == [0, 0, stale, stale]
    assert commit("a", 3) == [0, 0, 0, 0], "in its own epoch a member is trusted, as Kafka does"
    assert commit("b", 2) == [stale] * 4
    assert commit("b", 4) == [stale] * 4


def test_offsets_are_told_to_members_in_their_epoch_and_to_administrators(coordinator):
    coordinator.join("a")
    check = coordinator.group.check_fetch
    assert check(member_id="a", epoch=2) == ErrorCode.NONE
    assert check(member_id="a", epoch=1) == ErrorCode.STALE_MEMBER_EPOCH
    assert check(member_id="z", epoch=2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert check(member_id=None, epoch=-1) == ErrorCode.NONE


# -- static members --------------------------------------------------------


def test_a_static_member_that_is_back_in_time_has_what_it_had(coordinator):
    coordinator.join("a", instance_id="i")
    coordinator.join("b")
    coordinator.beat("a", 2, instance_id="i")
    coordinator.beat("a", 2, instance_id="i", owned={"t": [0, 1]})
    coordinator.beat("b", 3)
    gone = coordinator.beat("a", -2, instance_id="i")
    assert (gone.error_code, gone.member_epoch) == (0, -2)
    assert coordinator.share(coordinator.beat("b", 3)) is None, "its share waits for it"
    back = coordinator.join("a2", instance_id="i")
    assert (back.member_epoch, coordinator.share(back)) == (3, {"t": [0, 1]})
    assert coordinator.group.state.epoch == 3, "nobody else noticed"
    assert coordinator.beat("a", 3, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_need_not_say_its_instance_id_in_every_heartbeat(coordinator):
    coordinator.join("a", instance_id="i")
    written = len(coordinator.log)
    assert coordinator.beat("a", 2).member_epoch == 2
    assert coordinator.beat("a", 2, instance_id="i", rack_id=None).member_epoch == 2
    assert len(coordinator.log) == written
    assert coordinator.group.state.members["a"].instance_id == "i"


def test_a_static_member_that_stays_away_loses_its_share_with_its_session(coordinator):
    coordinator.join("a", instance_id="i")
    coordinator.beat("a", -2, instance_id="i")
    coordinator.pass_time(45_000)
    assert coordinator.group.is_empty


def test_an_instance_id_in_use_is_not_released(coordinator):
    coordinator.join("a", instance_id="i")
    assert coordinator.join("b", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert coordinator.join("a", instance_id="i").error_code == 0, "the same process, which missed our answer"


def test_an_unknown_instance_is_an_unknown_member(coordinator):
    coordinator.join("a")
    assert coordinator.beat("x", 1, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.beat("x", -2, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- subscriptions ---------------------------------------------------------


def test_new_partitions_and_topics_are_picked_up_with_the_next_heartbeat(coordinator):
    coordinator.join("a", "t", "v")
    coordinator.set_topics(t=5, u=2, v=1)
    answer = coordinator.beat("a", 2)
    assert (answer.member_epoch, coordinator.share(answer)) == (3, {"t": [0, 1, 2, 3, 4], "v": [0]})


def test_topics_that_are_not_subscribed_may_come_and_go(coordinator):
    coordinator.join("a", "t")
    coordinator.set_topics(t=4)
    assert coordinator.beat("a", 2).member_epoch == 2


def test_a_deleted_topic_is_given_up(coordinator):
    coordinator.join("a", "t", "u")
    coordinator.set_topics(t=4)
    assert coordinator.share(coordinator.beat("a", 2)) == {"t": [0, 1, 2, 3]}
    assert coordinator.beat("a", 2, owned={"t": [0, 1, 2, 3]}).member_epoch == 3


def test_an_expression_names_topics_as_they_appear(coordinator):
    regex = {"subscribed_topic_regex": "[tv]", "subscribed_topic_names": None}
    assert coordinator.share(coordinator.join("a", **regex)) == {"t": [0, 1, 2, 3]}
    coordinator.set_topics(t=4, u=2, v=2, vv=9)
    assert coordinator.share(coordinator.beat("a", 2)) == {"t": [0, 1, 2, 3], "v": [0, 1]}
    assert set(coordinator.group.state.regexes) == {"[tv]"}
    coordinator.beat("a", 3, subscribed_topic_regex="", subscribed_topic_names=["t"])
    assert coordinator.group.state.regexes == {}


BY_REGEX = {"subscribed_topic_regex": "[tuv]", "subscribed_topic_names": None}


def test_an_expression_leaves_out_topics_that_the_client_may_not_describe(coordinator):
    coordinator.may_describe = lambda name: name != "u"
    assert coordinator.share(coordinator.join("a", **BY_REGEX)) == {"t": [0, 1, 2, 3]}
    coordinator.set_topics(t=4, u=2, v=1)
    assert coordinator.share(coordinator.beat("a", 2)) == {"t": [0, 1, 2, 3], "v": [0]}


def test_a_member_that_leaves_hands_nobody_a_topic_that_it_may_not_describe(coordinator):
    coordinator.may_describe = lambda name: name == "t"
    coordinator.join("a", **BY_REGEX)
    coordinator.join("b", **BY_REGEX)
    coordinator.beat("b", -1)
    assert coordinator.group.state.regexes["[tuv]"].topics == {"t"}


def test_rights_that_change_are_noticed_when_expressions_are_evaluated_again(coordinator):
    coordinator.may_describe = lambda name: name == "t"
    coordinator.join("a", **BY_REGEX)
    coordinator.may_describe = lambda name: name == "u"
    assert coordinator.share(coordinator.beat("a", 2)) is None, "nothing is evaluated for a heartbeat without news"
    for _ in range(20):
        coordinator.pass_time(30_000)
        answer = coordinator.beat("a", 2)
    assert coordinator.share(answer) == {}, "t is taken away first"
    assert coordinator.share(coordinator.beat("a", 2, owned={})) == {"u": [0, 1]}


@pytest.mark.parametrize("regex", ["(", "a(?=b)", "[", "a{0,5000}"])
def test_a_malformed_expression_is_refused_and_changes_nothing(coordinator, regex):
    answer = coordinator.join("a", subscribed_topic_regex=regex)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert coordinator.group is None
    assert coordinator.log == []


def test_the_assignor_that_most_members_ask_for_is_used(coordinator):
    coordinator.join("a", "t", "u", server_assignor="range")
    coordinator.join("b", "t", "u", server_assignor="range")
    coordinator.join("c", "t", "u", server_assignor="uniform")
    targets = coordinator.group.state.targets
    assert targets["a"] == {coordinator.id_of("t"): (0, 1), coordinator.id_of("u"): (0,)}


# -- what is refused -------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "message"),
    [
        ("", 0, {}, "MemberId can't be empty."),
        ("a", 0, {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ("a", 0, {"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ("a", 0, {"owned": {"t": [0]}}, "TopicPartitions must be empty when (re-)joining."),
        (
            "a",
            0,
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ("a", 0, {"instance_id": ""}, "InstanceId can't be empty."),
        ("a", 0, {"rack_id": " "}, "RackId can't be empty."),
        ("a", -2, {}, "InstanceId can't be null."),
        ("a", -3, {}, "MemberEpoch is invalid."),
    ],
)
def test_malformed_requests_are_refused(coordinator, member_id, epoch, fields, message):
    given = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "owned": {}, **fields}
    answer = coordinator.beat(member_id, epoch, **given)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert coordinator.log == []


def test_version_0_is_given_a_member_id(coordinator):
    assert coordinator.join("", version=0).member_id


def test_an_unknown_assignor_is_refused(coordinator):
    assert coordinator.join("a", server_assignor="magic").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_group_that_is_not_there_is_not_found(coordinator):
    assert coordinator.beat("a", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.beat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_full_group_takes_nobody_else(new_coordinator):
    coordinator = new_coordinator(group_consumer_max_size=1)
    coordinator.join("a")
    assert coordinator.join("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.join("a").error_code == 0


def test_what_cannot_be_written_has_not_happened(coordinator):
    coordinator.join("a")
    before = coordinator.group.state.copy()
    coordinator.disk_is_full = True
    assert coordinator.join("b").error_code == ErrorCode.NOT_COORDINATOR
    assert coordinator.beat("a", -1).error_code == ErrorCode.NOT_COORDINATOR
    coordinator.pass_time(45_000)
    assert {name: getattr(before, name) for name in before.__slots__} == {
        name: getattr(coordinator.group.state, name) for name in before.__slots__
    }
    coordinator.disk_is_full = False
    coordinator.pass_time(1_000)
    assert coordinator.group.is_empty, "the session that ended meanwhile is looked at again"
