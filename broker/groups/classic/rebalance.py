"""The rebalance of a classic group: from one generation to the next, with its time-outs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.classic.member import Member
from tidemark.broker.groups.classic.membership import ClassicGroupState, GroupMembership
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupResponse
from tidemark.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard

log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_MS: Final = 300_000  # a new member cannot heartbeat while it waits; after this time it counts as lost
RETRY_MS: Final = 1_000  # when records that a timer caused could not be written
EXPECTED_JOINERS_MS: Final = (
    100  # without an initial delay: wait until no new member came for this long, if more are expected
)
EXPECTED_JOINERS_MAX_MS: Final = 1_000  # and this long at most


def prepare(shard: GroupShard, group: GroupMembership, *, reason: str, now_ms: int) -> None:
    """Start a rebalance: all members must join again. The group must not be preparing one already."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        _reset_sync(shard, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms=now_ms)
    group.cancel_phase()
    initial = group.state is ClassicGroupState.EMPTY
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, now_ms=now_ms)
    log.info("group %s prepares generation %d: %s", group.group_id, group.generation + 1, reason)
    if initial:
        _begin_initial_delay(shard, group, now_ms=now_ms)
    elif group.all_joined and group.members:
        complete_join(shard, group, now_ms=now_ms)
    else:
        _await_join(shard, group, now_ms=now_ms)


def prepare_or_complete(shard: GroupShard, group: GroupMembership, *, reason: str, now_ms: int) -> None:
    """A member joined, or joined again."""
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        prepare(shard, group, reason=reason, now_ms=now_ms)
    else:
        complete_if_all_joined(shard, group, now_ms=now_ms)


def complete_if_all_joined(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> None:
    """Expects that the group has members. An initial delay always runs to its end."""
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is not ClassicGroupState.EMPTY
        and group.all_joined
    ):
        complete_join(shard, group, now_ms=now_ms)


def _await_join(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> None:
    at_ms = now_ms + group.rebalance_timeout_ms
    group.phase_timer = shard.timers.set(at_ms, partial(_join_time_is_up, shard, group))


def _begin_initial_delay(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> None:
    """A new group waits for more members (group.initial.rebalance.delay.ms); each that arrives extends the wait."""
    group.new_member_added = False
    delay_ms, longest_ms = shard.config.group_initial_rebalance_delay_ms, group.rebalance_timeout_ms
    if delay_ms == 0 and _more_members_expected(shard, group, now_ms=now_ms):
        delay_ms, longest_ms = EXPECTED_JOINERS_MS, min(EXPECTED_JOINERS_MAX_MS, longest_ms)
    if delay_ms == 0:
        complete_join(shard, group, now_ms=now_ms)
        return
    _delay(shard, group, delay_ms=delay_ms, left_ms=max(longest_ms - delay_ms, 0), now_ms=now_ms)


def _more_members_expected(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> bool:
    """Consumers that start together arrive within milliseconds of each other. A generation with the first of them alone
    would be useless, and the others would wait for its next heartbeat: 3 s with most clients."""
    return bool(group.pending) or shard.recent_lookups(group.group_id, now_ms) > len(group.members)


def _delay(shard: GroupShard, group: GroupMembership, *, delay_ms: int, left_ms: int, now_ms: int) -> None:
    def over(at_ms: int) -> CoordinatorResult | None:
        if not group.new_member_added or left_ms == 0:
            return _join_time_is_up(shard, group, at_ms)
        group.new_member_added = False
        again_ms = min(delay_ms, left_ms)
        _delay(shard, group, delay_ms=again_ms, left_ms=max(left_ms - delay_ms, 0), now_ms=at_ms)
        return None

    group.phase_timer = shard.timers.set(now_ms + delay_ms, over)


def _join_time_is_up(shard: GroupShard, group: GroupMembership, now_ms: int) -> CoordinatorResult | None:
    """Remove members that have not joined again in time; static members stay until their session ends (KIP-345)."""
    for member in [each for each in group.members.values() if each.join is None and each.instance_id is None]:
        log.info("group %s: removed %s, which did not join again", group.group_id, member.member_id)
        group.remove(member)
    if not group.members:
        return become_empty(shard, group, now_ms=now_ms)
    if group.joining == 0:  # no member can lead: wait for a static member's return, or the end of its session
        _await_join(shard, group, now_ms=now_ms)
    else:
        complete_join(shard, group, now_ms=now_ms)
    return None


def become_empty(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> CoordinatorResult:
    """The last member is gone. Recorded, because from this time on offsets can expire."""

    def try_again(_: ErrorCode) -> None:
        at_ms = now_ms + RETRY_MS
        group.phase_timer = shard.timers.set(at_ms, partial(_join_time_is_up, shard, group))

    return CoordinatorResult([group.empty_group_record(now_ms=now_ms)], then=group.cancel_phase, refuse=try_again)


def complete_join(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> None:
    """The members that joined form the next generation. All get their answer; the leader's lists the members."""
    group.cancel_phase()
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join is None:
        group.leader = next(each.member_id for each in group.members.values() if each.join is not None)
    group.generation += 1
    shard.classic_rebalances += 1
    group.protocol = group.select_protocol()
    group.update_subscribed_topics()
    group.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms=now_ms)
    group.unsynced = set(group.members)
    log.info("group %s is at generation %d with %d members", group.group_id, group.generation, len(group.members))
    for member in group.members.values():
        answer_join(shard, group, member, join_response(group, member))
        start_session(shard, group, member, now_ms=now_ms)
        member.is_new = False
    _await_sync(shard, group, at_ms=now_ms + group.rebalance_timeout_ms)


def _await_sync(shard: GroupShard, group: GroupMembership, *, at_ms: int) -> None:
    group.phase_timer = shard.timers.set(at_ms, partial(_sync_time_is_up, shard, group))


def _sync_time_is_up(shard: GroupShard, group: GroupMembership, now_ms: int) -> CoordinatorResult | None:
    """Remove members that joined this generation and did not sync in time."""
    missing = [member for member_id, member in group.members.items() if member_id in group.unsynced]
    result = remove_members(shard, group, missing, reason="members joined and did not sync", now_ms=now_ms)
    if result is not None:
        result.refuse = lambda _: _await_sync(shard, group, at_ms=now_ms + RETRY_MS)
    return result


def join_response(group: GroupMembership, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """This generation, for one of its members."""
    leads = group.leader == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=[each.described(group.protocol) for each in group.members.values()] if leads else [],
    )


def answer_join(shard: GroupShard, group: GroupMembership, member: Member, response: JoinGroupResponse) -> None:
    if member.join is not None:
        shard.reply(member.join, response)
        member.join = None
        group.joining -= 1


def answer_sync(shard: GroupShard, member: Member, response: SyncGroupResponse) -> None:
    if member.sync is not None:
        shard.reply(member.sync, response)
        member.sync = None


def _reset_sync(shard: GroupShard, group: GroupMembership, code: ErrorCode, *, now_ms: int) -> None:
    """This generation gets no assignment: members that wait for it must join again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync is not None:
            answer_sync(shard, member, SyncGroupResponse(error_code=code))
            start_session(shard, group, member, now_ms=now_ms)


# -- departures ------------------------------------------------------------


def remove_members(
    shard: GroupShard, group: GroupMembership, leaving: Sequence[Member], *, reason: str, now_ms: int
) -> CoordinatorResult | None:
    """Remove members and rebalance. If no member is left, that must be recorded first."""
    initial_delay = (
        group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY
    )
    if len(leaving) == len(group.members) and not group.pending and not initial_delay:
        return _remove_all_members(shard, group, leaving, now_ms=now_ms)
    for member in leaving:
        remove_and_answer(shard, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        prepare(shard, group, reason=reason, now_ms=now_ms)
    elif group.members:
        complete_if_all_joined(shard, group, now_ms=now_ms)
    return None


def _remove_all_members(
    shard: GroupShard, group: GroupMembership, leaving: Sequence[Member], *, now_ms: int
) -> CoordinatorResult:
    result = become_empty(shard, group, now_ms=now_ms)

    def then() -> None:
        group.cancel_phase()
        for member in leaving:  # the replay removed the members, but their waiting requests are still open
            answer_waiting(shard, member, ErrorCode.UNKNOWN_MEMBER_ID)

    result.then = then
    return result


def remove_and_answer(shard: GroupShard, group: GroupMembership, member: Member, code: ErrorCode) -> None:
    group.remove(member)
    answer_waiting(shard, member, code)


def answer_waiting(shard: GroupShard, member: Member, code: ErrorCode) -> None:
    if member.join is not None:
        shard.reply(member.join, JoinGroupResponse(error_code=code))
        member.join = None
    if member.sync is not None:
        shard.reply(member.sync, SyncGroupResponse(error_code=code))
        member.sync = None


# -- sessions --------------------------------------------------------------


def start_session(shard: GroupShard, group: GroupMembership, member: Member, *, now_ms: int) -> None:
    """Restart the session of a member."""
    schedule_session_check(shard, group, member, deadline_ms=now_ms + member.session_timeout_ms)


def schedule_session_check(shard: GroupShard, group: GroupMembership, member: Member, *, deadline_ms: int) -> None:
    """Set a member's session deadline. A heartbeat only moves the deadline: the timer checks it when it fires."""
    member.deadline_ms = deadline_ms
    if member.timer is None or deadline_ms < member.timer.at_ms:
        member.cancel_timer()
        member.timer = shard.timers.set(deadline_ms, partial(_check_session, shard, group, member))


def _check_session(shard: GroupShard, group: GroupMembership, member: Member, now_ms: int) -> CoordinatorResult | None:
    member.timer = None
    if group.members.get(member.member_id) is not member:
        return None
    if member.waits_for_us:
        return None  # its answer starts the next session
    if member.deadline_ms > now_ms:
        schedule_session_check(shard, group, member, deadline_ms=member.deadline_ms)
        return None
    log.info("group %s: the session of %s expired", group.group_id, member.member_id)
    result = remove_members(shard, group, [member], reason=f"the session of {member.member_id} is over", now_ms=now_ms)
    if result is not None:
        result.refuse = lambda _: schedule_session_check(shard, group, member, deadline_ms=now_ms + RETRY_MS)
    return result
