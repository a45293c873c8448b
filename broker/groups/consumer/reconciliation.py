"""Reconciliation of a member with its target assignment. A partition is assigned only when no other member owns it.

A member first revokes partitions that are not in its target, and stays in its epoch until it confirms that. Then it
moves to the epoch of the target and gets the partitions that are free. The rest follows when their owners release them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tidemark.broker.groups.consumer.assignors import Assignment
from tidemark.broker.groups.consumer.member import NOTHING, AssignedPartitions, Member, MemberState

Owned = Mapping[bytes, Collection[int]]  # the partitions that the member reports
IsFree = Callable[[bytes, int], bool]


def reconcile(
    member: Member,
    *,
    target: Assignment,
    target_epoch: int,
    subscribed: Collection[bytes],
    owned: Owned | None,
    is_free: IsFree,
    subscription_changed: bool = False,
) -> Member:
    """The member after this step, the same object if nothing changed. `owned` is None if it did not report any.

    `subscribed` are the ids of its topics: a target from before its last change of subscription is reduced to them.
    """
    if member.state is MemberState.STABLE and member.member_epoch == target_epoch and not subscription_changed:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _holds_any(owned, member.pending_revocation):
        return _revoke_unsubscribed(member, subscribed) if subscription_changed else member
    return _step(member, target, target_epoch, subscribed, owned, is_free)


def _step(
    member: Member,
    target: Assignment,
    target_epoch: int,
    subscribed: Collection[bytes],
    owned: Owned | None,
    is_free: IsFree,
) -> Member:
    kept: dict[bytes, dict[int, int]] = {}
    surplus: dict[bytes, dict[int, int]] = {}
    granted: dict[bytes, list[int]] = {}
    waiting = False
    for topic_id in sorted(target.keys() | member.assigned.keys()):
        wanted = frozenset(target.get(topic_id, ())) if topic_id in subscribed else frozenset()
        held = member.assigned.get(topic_id, {})
        released = member.pending_revocation.get(topic_id, {})
        _put(kept, topic_id, {number: epoch for number, epoch in held.items() if number in wanted})
        _put(surplus, topic_id, {number: epoch for number, epoch in held.items() if number not in wanted})
        missing = sorted(wanted - held.keys())
        # What this member itself has just revoked is free for it.
        free = [number for number in missing if number in released or is_free(topic_id, number)]
        waiting = waiting or len(free) < len(missing)
        if free:
            granted[topic_id] = free
    if surplus and _holds_any(owned, surplus):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, surplus)
    for topic_id, numbers in granted.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(numbers, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waiting else MemberState.STABLE
    return _moved(member, state, target_epoch, kept, NOTHING)


def _revoke_unsubscribed(member: Member, subscribed: Collection[bytes]) -> Member:
    """It is still revoking partitions, and its subscription became smaller meanwhile."""
    surplus = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in subscribed}
    if not surplus:
        return member
    pending = {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
    for topic_id, epochs in surplus.items():
        pending.setdefault(topic_id, {}).update(epochs)
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed}
    return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, pending)


def _holds_any(owned: Owned | None, partitions: AssignedPartitions) -> bool:
    """Without a report the member must be assumed to own everything still."""
    if owned is None:
        return True
    return any(number in numbers for topic_id, numbers in partitions.items() for number in owned.get(topic_id, ()))


def _moved(
    member: Member, state: MemberState, epoch: int, assigned: AssignedPartitions, pending: AssignedPartitions
) -> Member:
    after = replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )
    return member if replace(after, previous_member_epoch=member.previous_member_epoch) == member else after


def _put(into: dict[bytes, dict[int, int]], topic_id: bytes, epochs: dict[int, int]) -> None:
    if epochs:
        into[topic_id] = epochs
