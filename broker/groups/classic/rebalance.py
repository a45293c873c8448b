"""How a classic group gets from one generation to the next, and how long it waits for whom."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.broker.coordination.outcome import Outcome
from tidemark.broker.groups.classic.member import Member
from tidemark.broker.groups.classic.roster import Roster, State
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupResponse
from tidemark.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import Shard

log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_MS: Final = (
    300_000  # a new member cannot heartbeat while it waits; after this long it is taken for lost
)
RETRY_MS: Final = 1_000  # when what an alarm decided could not be written
GATHER_MS: Final = 100  # without an initial delay: how long nobody must have come, where several are on their way
GATHER_MAX_MS: Final = 1_000  # … and for how long in all


def prepare(shard: Shard, group: Roster, *, reason: str, now_ms: int) -> None:
    """Ask everybody to join again. The group must be able to: it is not preparing already."""
    if group.state is State.COMPLETING_REBALANCE:
        _reset_sync(shard, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms=now_ms)
    group.cancel_phase()
    initial = group.state is State.EMPTY
    group.enter(State.PREPARING_REBALANCE, now_ms=now_ms)
    log.info("group %s prepares generation %d: %s", group.group_id, group.generation + 1, reason)
    if initial:
        _begin_initial_delay(shard, group, now_ms=now_ms)
    elif group.all_joined and group.members:
        complete_join(shard, group, now_ms=now_ms)
    else:
        _await_join(shard, group, now_ms=now_ms)


def prepare_or_complete(shard: Shard, group: Roster, *, reason: str, now_ms: int) -> None:
    """Somebody joined, or joined anew."""
    if group.state is not State.PREPARING_REBALANCE:
        prepare(shard, group, reason=reason, now_ms=now_ms)
    else:
        complete_if_all_joined(shard, group, now_ms=now_ms)


def complete_if_all_joined(shard: Shard, group: Roster, *, now_ms: int) -> None:
    """The group has members. An initial delay runs its course, whoever is there."""
    if group.state is State.PREPARING_REBALANCE and group.previous_state is not State.EMPTY and group.all_joined:
        complete_join(shard, group, now_ms=now_ms)


def _await_join(shard: Shard, group: Roster, *, now_ms: int) -> None:
    at_ms = now_ms + group.rebalance_timeout_ms
    group.phase_alarm = shard.alarms.set(at_ms, partial(_join_time_is_up, shard, group))


def _begin_initial_delay(shard: Shard, group: Roster, *, now_ms: int) -> None:
    """The group is new, and more members are probably on their way: each that arrives buys the next one time."""
    group.new_member_added = False
    delay_ms, longest_ms = shard.config.group_initial_rebalance_delay_ms, group.rebalance_timeout_ms
    if delay_ms == 0 and _others_are_coming(shard, group, now_ms=now_ms):
        delay_ms, longest_ms = GATHER_MS, min(GATHER_MAX_MS, longest_ms)
    if delay_ms == 0:
        complete_join(shard, group, now_ms=now_ms)
        return
    _delay(shard, group, delay_ms=delay_ms, left_ms=max(longest_ms - delay_ms, 0), now_ms=now_ms)


def _others_are_coming(shard: Shard, group: Roster, *, now_ms: int) -> bool:
    """Consumers that start together arrive within milliseconds of each other. A generation with the first of them alone
    would be in vain, and cost the others the time until its next heartbeat: 3 s with most clients."""
    return bool(group.pending) or shard.seekers(group.group_id, now_ms) > len(group.members)


def _delay(shard: Shard, group: Roster, *, delay_ms: int, left_ms: int, now_ms: int) -> None:
    def over(at_ms: int) -> Outcome | None:
        if not group.new_member_added or left_ms == 0:
            return _join_time_is_up(shard, group, at_ms)
        group.new_member_added = False
        again_ms = min(delay_ms, left_ms)
        _delay(shard, group, delay_ms=again_ms, left_ms=max(left_ms - delay_ms, 0), now_ms=at_ms)
        return None

    group.phase_alarm = shard.alarms.set(now_ms + delay_ms, over)


def _join_time_is_up(shard: Shard, group: Roster, now_ms: int) -> Outcome | None:
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


def become_empty(shard: Shard, group: Roster, *, now_ms: int) -> Outcome:
    """Nobody is left. That is written down, because from now on its offsets can expire."""

    def try_again(_: ErrorCode) -> None:
        at_ms = now_ms + RETRY_MS
        group.phase_alarm = shard.alarms.set(at_ms, partial(_join_time_is_up, shard, group))

    return Outcome([group.empty_fact(now_ms=now_ms)], then=group.cancel_phase, refuse=try_again)


def complete_join(shard: Shard, group: Roster, *, now_ms: int) -> None:
    """The next generation is who is here. All get their answer; the leader's says who they are."""
    group.cancel_phase()
    leader = group.members.get(group.leader or "")
    if leader is None or leader.join is None:
        group.leader = next(each.member_id for each in group.members.values() if each.join is not None)
    group.generation += 1
    group.protocol = group.select_protocol()
    group.note_subscriptions()
    group.enter(State.COMPLETING_REBALANCE, now_ms=now_ms)
    group.unsynced = set(group.members)
    log.info("group %s is at generation %d with %d members", group.group_id, group.generation, len(group.members))
    for member in group.members.values():
        answer_join(shard, group, member, join_response(group, member))
        start_session(shard, group, member, now_ms=now_ms)
        member.is_new = False
    _await_sync(shard, group, at_ms=now_ms + group.rebalance_timeout_ms)


def _await_sync(shard: Shard, group: Roster, *, at_ms: int) -> None:
    group.phase_alarm = shard.alarms.set(at_ms, partial(_sync_time_is_up, shard, group))


def _sync_time_is_up(shard: Shard, group: Roster, now_ms: int) -> Outcome | None:
    """Members that joined this generation and never asked for their assignment are not coming."""
    missing = [member for member_id, member in group.members.items() if member_id in group.unsynced]
    outcome = depart(shard, group, missing, reason="members joined and did not sync", now_ms=now_ms)
    if outcome is not None:
        outcome.refuse = lambda _: _await_sync(shard, group, at_ms=now_ms + RETRY_MS)
    return outcome


def join_response(group: Roster, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
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


def answer_join(shard: Shard, group: Roster, member: Member, response: JoinGroupResponse) -> None:
    if member.join is not None:
        shard.reply(member.join, response)
        member.join = None
        group.joining -= 1


def answer_sync(shard: Shard, member: Member, response: SyncGroupResponse) -> None:
    if member.sync is not None:
        shard.reply(member.sync, response)
        member.sync = None


def _reset_sync(shard: Shard, group: Roster, code: ErrorCode, *, now_ms: int) -> None:
    """This generation will not get its assignment: whoever waits for it joins again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync is not None:
            answer_sync(shard, member, SyncGroupResponse(error_code=code))
            start_session(shard, group, member, now_ms=now_ms)


# -- departures ------------------------------------------------------------


def depart(shard: Shard, group: Roster, leaving: Sequence[Member], *, reason: str, now_ms: int) -> Outcome | None:
    """Remove members, and let the others know. If nobody is left, that must be written down first."""
    initial_delay = group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY
    if len(leaving) == len(group.members) and not group.pending and not initial_delay:
        return _depart_all(shard, group, leaving, now_ms=now_ms)
    for member in leaving:
        dismiss(shard, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is not State.PREPARING_REBALANCE:
        prepare(shard, group, reason=reason, now_ms=now_ms)
    elif group.members:
        complete_if_all_joined(shard, group, now_ms=now_ms)
    return None


def _depart_all(shard: Shard, group: Roster, leaving: Sequence[Member], *, now_ms: int) -> Outcome:
    outcome = become_empty(shard, group, now_ms=now_ms)

    def then() -> None:
        group.cancel_phase()
        for member in leaving:  # the replay took them out of the group; what they wait for is still open
            answer_waiting(shard, member, ErrorCode.UNKNOWN_MEMBER_ID)

    outcome.then = then
    return outcome


def dismiss(shard: Shard, group: Roster, member: Member, code: ErrorCode) -> None:
    group.remove(member)
    answer_waiting(shard, member, code)


def answer_waiting(shard: Shard, member: Member, code: ErrorCode) -> None:
    if member.join is not None:
        shard.reply(member.join, JoinGroupResponse(error_code=code))
        member.join = None
    if member.sync is not None:
        shard.reply(member.sync, SyncGroupResponse(error_code=code))
        member.sync = None


# -- sessions --------------------------------------------------------------


def start_session(shard: Shard, group: Roster, member: Member, *, now_ms: int) -> None:
    """We heard from the member, or it from us."""
    watch(shard, group, member, deadline_ms=now_ms + member.session_timeout_ms)


def watch(shard: Shard, group: Roster, member: Member, *, deadline_ms: int) -> None:
    """Look after a member at its deadline. A heartbeat only moves the deadline: the alarm finds that out later."""
    member.deadline_ms = deadline_ms
    if member.alarm is None or deadline_ms < member.alarm.at_ms:
        member.cancel_alarm()
        member.alarm = shard.alarms.set(deadline_ms, partial(_look_after, shard, group, member))


def _look_after(shard: Shard, group: Roster, member: Member, now_ms: int) -> Outcome | None:
    member.alarm = None
    if group.members.get(member.member_id) is not member:
        return None
    if member.waits_for_us:
        return None  # its answer starts the next session
    if member.deadline_ms > now_ms:
        watch(shard, group, member, deadline_ms=member.deadline_ms)
        return None
    log.info("group %s: the session of %s is over", group.group_id, member.member_id)
    outcome = depart(shard, group, [member], reason=f"the session of {member.member_id} is over", now_ms=now_ms)
    if outcome is not None:
        outcome.refuse = lambda _: watch(shard, group, member, deadline_ms=now_ms + RETRY_MS)
    return outcome
