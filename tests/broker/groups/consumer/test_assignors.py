from __future__ import annotations

import time
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.broker.groups.consumer.assignors import ASSIGNORS, MemberSpec
from tidemark.broker.groups.consumer.assignors.range import assign_range
from tidemark.broker.groups.consumer.assignors.uniform import assign_uniform

TOPICS = [bytes([number]) * 16 for number in range(6)]

topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=5)
names = st.sampled_from([f"m{number}" for number in range(8)])
instance_ids = st.one_of(st.none(), st.sampled_from(["a", "b"]))


def fresh(subscriptions: dict[str, frozenset[bytes]]) -> dict[str, MemberSpec]:
    return {name: MemberSpec(None, topics, {}) for name, topics in subscriptions.items()}


def again(members: dict[str, MemberSpec], assignment) -> dict[str, MemberSpec]:
    return {name: spec._replace(previous=assignment.get(name, {})) for name, spec in members.items()}


def owned(assignment) -> Counter[tuple[bytes, int]]:
    return Counter((topic, number) for share in assignment.values() for topic in share for number in share[topic])


def load(share) -> int:
    return sum(map(len, share.values()))


def wanted(members: dict[str, MemberSpec], topics: dict[bytes, int]) -> set[tuple[bytes, int]]:
    return {
        (topic, number)
        for topic, count in topics.items()
        if any(topic in spec.topics for spec in members.values())
        for number in range(count)
    }


subscriptions = st.dictionaries(names, st.frozensets(st.sampled_from(TOPICS)), min_size=1)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(subscriptions=subscriptions, topics=topics)
def test_every_partition_goes_to_exactly_one_subscriber(name, subscriptions, topics):
    members = fresh(subscriptions)
    assignment = ASSIGNORS[name](members, topics)
    found = owned(assignment)
    assert set(found) == wanted(members, topics)
    assert all(count == 1 for count in found.values())
    assert all(topic in members[name].topics for name, share in assignment.items() for topic in share)
    assert all(list(numbers) == sorted(numbers) for share in assignment.values() for numbers in share.values())
    assert set(assignment) == set(members)


@given(names=st.sets(names, min_size=1), subscription=st.frozensets(st.sampled_from(TOPICS)), topics=topics)
def test_uniform_shares_of_one_subscription_differ_by_one_at_most(names, subscription, topics):
    assignment = assign_uniform(fresh(dict.fromkeys(names, subscription)), topics)
    loads = [load(share) for share in assignment.values()]
    assert max(loads) - min(loads) <= 1


@given(subscriptions=subscriptions, before=subscriptions, topics=topics, topics_before=topics)
def test_uniform_leaves_no_move_that_would_level_two_shares(subscriptions, before, topics, topics_before):
    old = assign_uniform(fresh(before), topics_before)
    members = again(fresh(subscriptions), old)
    assignment = assign_uniform(members, topics)
    assert set(owned(assignment)) == wanted(members, topics)
    for name, share in assignment.items():
        for topic in share:
            for other, spec in members.items():
                if topic in spec.topics:
                    assert load(share) - load(assignment[other]) <= 1, (name, other, topic)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(subscriptions=subscriptions, topics=topics)
def test_nothing_moves_when_nothing_changed(name, subscriptions, topics):
    assign = ASSIGNORS[name]
    members = fresh(subscriptions)
    first = assign(members, topics)
    assert assign(again(members, first), topics) == first


@given(names=st.sets(names, min_size=2), subscription=st.frozensets(st.sampled_from(TOPICS)), topics=topics)
def test_uniform_moves_only_what_a_leaver_had(names, subscription, topics):
    members = fresh(dict.fromkeys(names, subscription))
    before = assign_uniform(members, topics)
    leaver = min(names)
    rest = {name: spec for name, spec in again(members, before).items() if name != leaver}
    after = assign_uniform(rest, topics)
    for name in rest:
        assert set(owned({name: before[name]})) <= set(owned({name: after[name]}))


@given(names=st.sets(names, min_size=1), subscription=st.frozensets(st.sampled_from(TOPICS)), topics=topics)
def test_uniform_gives_a_joiner_its_quota_and_moves_nothing_else(names, subscription, topics):
    members = fresh(dict.fromkeys(names, subscription))
    before = assign_uniform(members, topics)
    grown = again(members, before)
    grown["joiner"] = MemberSpec(None, subscription, {})
    after = assign_uniform(grown, topics)
    for name in members:
        assert set(owned({name: after[name]})) <= set(owned({name: before[name]}))


@given(names=st.sets(names, min_size=1), subscription=st.frozensets(st.sampled_from(TOPICS)), count=st.integers(1, 12))
def test_range_gives_equal_numbers_of_equally_cut_topics_to_one_member(names, subscription, count):
    assignment = assign_range(fresh(dict.fromkeys(names, subscription)), dict.fromkeys(subscription, count))
    for share in assignment.values():
        assert len(set(share.values())) <= 1
        for numbers in share.values():
            assert list(numbers) == list(range(numbers[0], numbers[-1] + 1))


def test_range_orders_static_members_by_instance_id_before_the_others():
    topic = TOPICS[0]
    members = {
        "z": MemberSpec("a", frozenset([topic]), {}),
        "y": MemberSpec("b", frozenset([topic]), {}),
        "b": MemberSpec(None, frozenset([topic]), {}),
        "a": MemberSpec(None, frozenset([topic]), {}),
    }
    assert assign_range(members, {topic: 6}) == {
        "z": {topic: (0, 1)},
        "y": {topic: (2, 3)},
        "a": {topic: (4,)},
        "b": {topic: (5,)},
    }


def test_a_restarted_static_member_keeps_its_range_under_another_member_id():
    topic = TOPICS[0]
    subscription = frozenset([topic])
    before = assign_range({name: MemberSpec(name, subscription, {}) for name in ("a", "b")}, {topic: 4})
    members = {"zz": MemberSpec("a", subscription, {}), "b": MemberSpec("b", subscription, {})}
    assert assign_range(members, {topic: 4})["zz"] == before["a"]


def test_an_unchanged_share_is_given_back_as_the_same_object():
    topic = TOPICS[0]
    members = fresh(dict.fromkeys("abc", frozenset([topic])))
    first = assign_uniform(members, {topic: 9})
    second = assign_uniform(again(members, first), {topic: 9})
    assert all(second[name] is first[name] for name in members)


def test_nobody_gets_nothing():
    assert assign_uniform({}, {TOPICS[0]: 3}) == {}
    assert assign_range({}, {TOPICS[0]: 3}) == {}


@settings(deadline=None)
@given(seed=st.integers(0, 3))
def test_uniform_over_many_members_stays_disjoint_as_they_come_and_go(seed):
    topic, other = TOPICS[:2]
    members: dict[str, MemberSpec] = {}
    for step in range(40):
        name = f"m{(step * 7 + seed) % 23}"
        if name in members and step % 3:
            del members[name]
        else:
            members[name] = MemberSpec(None, frozenset([topic, other] if step % 5 else [topic]), {})
        assignment = assign_uniform(members, {topic: 40, other: 17})
        for one, two in combinations(assignment, 2):
            assert not set(owned({one: assignment[one]})) & set(owned({two: assignment[two]}))
        members = again(members, assignment)


def test_a_thousand_partitions_over_a_hundred_members_take_milliseconds():
    sizes = dict.fromkeys(TOPICS[:5], 200)
    members = fresh({f"member-{number:03}": frozenset(sizes) for number in range(100)})
    first = assign_uniform(members, sizes)
    grown = again(members, first)
    grown["joiner"] = MemberSpec(None, frozenset(sizes), {})
    fastest = min(_timed(assign_uniform, grown, sizes) for _ in range(5))
    assert fastest < 0.05  # about 2 ms on a quiet machine


def _timed(assign, members, sizes) -> float:
    started = time.perf_counter()
    assign(members, sizes)
    return time.perf_counter() - started
