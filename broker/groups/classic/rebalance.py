"""How a classic group gets from one generation to the next, and how long it waits for whom."""

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

NEW_MEMBER_JOIN_MS: Final = (
    300_000  # a new member cannot heartbeat while it waits; after this long it is taken for lost
)
RETRY_MS: Final = 1_000  # when what an alarm decided could not be written
EXPECTED_JOINERS_MS: Final = (
    100  # without an initial delay: how long nobody must have come, where several are on their way
)
EXPECTED_JOINERS_MAX_MS: Final = 1_000  # … and for how long in all


def prepare(shard: GroupShard, group: GroupMembership, *, reason: str, now_ms: int) -> None:
    """Ask everybody to join again. The group must be able to: it is not preparing already."""
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
    """Somebody joined, or joined anew."""
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        prepare(shard, group, reason=reason, now_ms=now_ms)
    else:
        complete_if_all_joined(shard, group, now_ms=now_ms)


def complete_if_all_joined(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> None:
    """The group has members. An initial delay runs its course, whoever is there."""
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
    """The group is new, and more members are probably on their way: each that arrives buys the next one time."""
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
    would be in vain, and cost the others the time until its next heartbeat: 3 s with most clients."""
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
    """Whoever has not joined again by now is out; static members stay until their session ends (KIP-345)."""
    for member in [each for each in group.members.values() if each.join is None and each.instance_id is None]:
        log.info("group %s goes on without %s, which did not join again", group.group_id, member.member_id)
        group.remove(member)
    if not group.members:
        return become_empty(shard, group, now_ms=now_ms)
    if group.joining == 0:  # nobody to lead: wait until a static member is back, or its session over
        _await_join(shard, group, now_ms=now_ms)
    else:
        complete_join(shard, group, now_ms=now_ms)
    return None


def become_empty(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> CoordinatorResult:
    """Nobody is left. That is written down, because from now on its offsets can expire."""

    def try_again(_: ErrorCode) -> None:
        at_ms = now_ms + RETRY_MS
        group.phase_timer = shard.timers.set(at_ms, partial(_join_time_is_up, shard, group))

    return CoordinatorResult([group.empty_group_record(now_ms=now_ms)], then=group.cancel_phase, refuse=try_again)


def complete_join(shard: GroupShard, group: GroupMembership, *, now_ms: int) -> None:
    """The next generation is who is here. All get their answer; the leader's says who they are."""
    group.cancel_phase()
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join is None:
        group.leader = next(each.member_id for each in group.members.values() if each.join is not None)
    group.generation += 1
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
    """Members that joined this generation and never asked for their assignment are not coming."""
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
    """This generation will not get its assignment: whoever waits for it joins again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync is not None:
            answer_sync(shard, member, SyncGroupResponse(error_code=code))
            start_session(shard, group, member, now_ms=now_ms)


# -- departures ------------------------------------------------------------


def remove_members(
    shard: GroupShard, group: GroupMembership, leaving: Sequence[Member], *, reason: str, now_ms: int
) -> CoordinatorResult | None:
    """Remove members, and let the others know. If nobody is left, that must be written down first."""
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
        for member in leaving:  # the replay took them out of the group; what they wait for is still open
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
    """We heard from the member, or it from us."""
    schedule_session_check(shard, group, member, deadline_ms=now_ms + member.session_timeout_ms)


def schedule_session_check(shard: GroupShard, group: GroupMembership, member: Member, *, deadline_ms: int) -> None:
    """Look after a member at its deadline. A heartbeat only moves the deadline: the alarm finds that out later."""
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
    log.info("group %s: the session of %s is over", group.group_id, member.member_id)
    result = remove_members(shard, group, [member], reason=f"the session of {member.member_id} is over", now_ms=now_ms)
    if result is not None:
        result.refuse = lambda _: schedule_session_check(shard, group, member, deadline_ms=now_ms + RETRY_MS)
    return result
