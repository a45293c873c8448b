"""Uniform: every member gets as many partitions as any other, and keeps what it had wherever that allows it.

With one subscription for all, shares differ by one at most. With several subscriptions, no partition can move to a
subscriber of its topic that has at least two fewer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from tidemark.broker.groups.consumer.assignors.spec import Assignment, MemberSpec

Partition = tuple[int, bytes]  # number first: handed out in this order, a topic spreads over many members


def assign_uniform(members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> dict[str, Assignment]:
    if not members:
        return {}
    kept, unowned = _keep(members, topics)
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        _fill_to_quota(kept, unowned)
    else:
        _fill_least_loaded(members, kept, unowned)
        _level(members, kept)
    return {
        member_id: previous if share is None else _by_topic(share)
        for member_id, previous, share in _unchanged_as_it_was(members, kept)
    }


def _unchanged_as_it_was(
    members: Mapping[str, MemberSpec], shares: Mapping[str, list[Partition]]
) -> Iterator[tuple[str, Assignment, list[Partition] | None]]:
    """An unchanged assignment is returned as the same object, which is a cheap way to see what changed."""
    for member_id, member in members.items():
        share = shares[member_id]
        share.sort()
        same = len(share) == sum(map(len, member.previous.values())) and share == _flat(member.previous)
        yield member_id, member.previous, None if same else share


def _keep(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> tuple[dict[str, list[Partition]], list[Partition]]:
    """What each member keeps, and the partitions that are left."""
    free = {topic_id: set(range(count)) for topic_id, count in topics.items()}
    kept: dict[str, list[Partition]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        share = kept[member_id] = []
        for topic_id, partitions in member.previous.items():
            left = free.get(topic_id)
            if left is None or topic_id not in member.topics:
                continue
            share += [(number, topic_id) for number in partitions if number in left]
            left.difference_update(partitions)
        share.sort()
    wanted = frozenset[bytes]().union(*(member.topics for member in members.values()))
    unowned = [(number, topic_id) for topic_id, left in free.items() if topic_id in wanted for number in left]
    unowned.sort()
    return kept, unowned


def _fill_to_quota(shares: dict[str, list[Partition]], unowned: list[Partition]) -> None:
    """One subscription for all: every share becomes `each`, or `each + 1` for the first that reach it."""
    total = len(unowned) + sum(map(len, shares.values()))
    each, extra = divmod(total, len(shares))
    surplus: list[Partition] = []
    for share in shares.values():
        room = each
        if len(share) > each and extra:
            room, extra = each + 1, extra - 1
        surplus += share[room:]
        del share[room:]
    waiting = iter(sorted(unowned + surplus)) if surplus else iter(unowned)
    for share in sorted(shares.values(), key=len):
        if len(share) > each:
            continue
        room = each
        if extra:
            room, extra = each + 1, extra - 1
        share += islice(waiting, room - len(share))


def _fill_least_loaded(
    members: Mapping[str, MemberSpec], shares: dict[str, list[Partition]], unowned: Iterable[Partition]
) -> None:
    """Topics with the fewest subscribers first, for they have the least choice."""
    waiting: dict[bytes, list[Partition]] = {}
    for partition in unowned:
        waiting.setdefault(partition[1], []).append(partition)
    subscribers = _subscribers(members, waiting)
    for topic_id in sorted(waiting, key=lambda topic_id: (len(subscribers[topic_id]), topic_id)):
        loads = sorted((len(shares[member_id]), member_id) for member_id in subscribers[topic_id])
        for partition in waiting[topic_id]:
            load, member_id = loads.pop(0)
            shares[member_id].append(partition)
            insort(loads, (load + 1, member_id))


def _level(members: Mapping[str, MemberSpec], shares: dict[str, list[Partition]]) -> None:
    """Move single partitions from the fullest to the emptiest subscriber of a topic until that gains nothing.

    Every move brings the sum of the squares of all loads down, so this ends.
    """
    owned: dict[bytes, dict[str, list[Partition]]] = {}
    for member_id, share in shares.items():
        for partition in share:
            owned.setdefault(partition[1], {}).setdefault(member_id, []).append(partition)
    load = {member_id: len(share) for member_id, share in shares.items()}
    subscribers = _subscribers(members, owned)
    moved = True
    while moved:
        moved = False
        for topic_id in sorted(owned):
            moved = _level_topic(owned[topic_id], subscribers[topic_id], load) or moved
    for share in shares.values():
        share.clear()
    for holders in owned.values():
        for member_id, partitions in holders.items():
            shares[member_id] += partitions


def _level_topic(holders: dict[str, list[Partition]], subscribers: list[str], load: dict[str, int]) -> bool:
    moved = False
    while True:
        fullest = max((member_id for member_id, partitions in holders.items() if partitions), key=load.__getitem__)
        emptiest = min(subscribers, key=load.__getitem__)
        if load[fullest] - load[emptiest] < 2:
            return moved
        holders.setdefault(emptiest, []).append(holders[fullest].pop())
        load[fullest] -= 1
        load[emptiest] += 1
        moved = True


def _subscribers(members: Mapping[str, MemberSpec], topics: Iterable[bytes]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {topic_id: [] for topic_id in topics}
    for member_id in sorted(members):
        for topic_id in members[member_id].topics & found.keys():
            found[topic_id].append(member_id)
    return found


def _flat(assignment: Assignment) -> list[Partition]:
    return sorted((number, topic_id) for topic_id, partitions in assignment.items() for number in partitions)


def _by_topic(share: Iterable[Partition]) -> Assignment:
    """From partitions in order."""
    assignment: dict[bytes, list[int]] = {}
    for number, topic_id in share:
        assignment.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(assignment[topic_id]) for topic_id in sorted(assignment)}
