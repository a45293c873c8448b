from __future__ import annotations

from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.consumer.member import ClassicMetadata, Member, MemberState
from tidemark.broker.groups.consumer.new_records import current_assignment_record, member_subscription_record
from tidemark.broker.groups.consumer.state import GroupState
from tidemark.broker.groups.records import decode, encode_key, encode_value


def facts_of(state: GroupState) -> dict[str, object]:
    return {name: getattr(state, name) for name in state.__slots__}


def test_a_member_is_read_back_as_it_was_written():
    member = Member(
        member_id="m",
        instance_id="i",
        rack_id="r",
        client_id="c",
        client_host="/h",
        subscribed_topic_names=frozenset(["t", "u"]),
        subscribed_topic_regex="a.*",
        rebalance_timeout_ms=7,
        server_assignor="range",
        classic=ClassicMetadata(session_timeout_ms=9, protocols=(("range", b"\0\1"), ("sticky", b""))),
        member_epoch=5,
        previous_member_epoch=4,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={bytes(16): {0: 3, 2: 5}},
        pending_revocation={bytes(16): {1: 4}},
    )
    state = GroupState("g")
    for record in (member_subscription_record("g", member), current_assignment_record("g", member)):
        state.replay(decode(encode_key(record.key), encode_value(record.value, record.version)))
    assert state.members == {"m": member}
    assert state.static_members == {"i": "m"}
    assert state.owners == dict.fromkeys([(bytes(16), 0), (bytes(16), 1), (bytes(16), 2)], "m")


def test_replaying_the_log_comes_to_the_same_group(coordinator):
    coordinator.join("a", "t", instance_id="i", subscribed_topic_regex="u")
    coordinator.join("b", "t", "u")
    coordinator.beat("a", 2, instance_id="i")
    coordinator.beat("b", -1)
    replayed = coordinator.replayed().groups["g"]
    assert isinstance(replayed, ConsumerGroup)
    assert facts_of(replayed.state) == facts_of(coordinator.group.state)


def test_the_tombstones_of_a_group_leave_nothing(coordinator):
    coordinator.join("a", "t", instance_id="i", subscribed_topic_regex="u")
    for record in coordinator.group.tombstones():
        coordinator.shard.replay(record)
    assert coordinator.shard.groups == {}


def test_tombstones_of_a_group_that_is_gone_make_none(coordinator):
    coordinator.join("a", "t")
    tombstones = coordinator.group.tombstones()
    shard = coordinator.replayed()
    for record in [*tombstones, *tombstones]:
        shard.replay(record)
    assert shard.groups == {}


def test_after_loading_everybody_has_a_whole_session_again(coordinator):
    coordinator.join("a", "t")
    coordinator.now_ms += 40_000
    coordinator.shard = coordinator.replayed()
    list(coordinator.shard.loaded(coordinator.now_ms))
    coordinator.pass_time(44_999)
    assert not coordinator.group.is_empty
    coordinator.pass_time(1)
    assert coordinator.group.is_empty


def test_an_empty_group_can_be_deleted_and_one_with_members_not(coordinator):
    coordinator.join("a", "t")
    assert coordinator.shard.delete_group("g").name == "NON_EMPTY_GROUP"
    coordinator.beat("a", -1)
    assert coordinator.finish(coordinator.shard.delete_group("g")) == 0
    assert coordinator.replayed().groups == {}


def test_subscribed_topics_are_known(coordinator):
    coordinator.join("a", "t", subscribed_topic_regex="u")
    assert coordinator.group.subscribes_to("t")
    assert coordinator.group.subscribes_to("u")
    assert not coordinator.group.subscribes_to("v")
