"""A leader's view of its followers, as a value: marks, in-sync sets, and what is asked of the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.broker.replication.leadership import LastFetch, Leadership, Proposal

LAG = 30.0
LEADER = 1


def leading(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    start_offset: int = 0,
    is_eligible: Callable[[int, int], bool] = lambda _node, _epoch: True,
) -> Leadership:
    return Leadership(
        node_id=LEADER,
        leader_epoch=5,
        partition_epoch=7,
        replicas=replicas,
        isr=isr,
        start_offset=start_offset,
        now=0.0,
        is_eligible=is_eligible,
    )


def fetches(
    led: Leadership, node: int, offset: int, *, end: int, now: float, last_fetch: LastFetch | None = None
) -> None:
    last_fetch = last_fetch or LastFetch()
    led.followers[node].fetched(
        offset=offset, log_start_offset=0, end_offset=end, broker_epoch=node * 10, now=now, last_fetch=last_fetch
    )
    last_fetch.at = now


def mark(led: Leadership, end: int, now: float = 1.0) -> int:
    return led.high_watermark(end, now=now, lag_max=LAG)


def test_nothing_is_committed_before_every_member_has_been_heard_of() -> None:
    led = leading()
    fetches(led, 2, 10, end=10, now=1)
    assert mark(led, 10) == -1
    fetches(led, 3, 8, end=10, now=1)
    assert mark(led, 10) == 8
    fetches(led, 3, 10, end=10, now=1)
    assert mark(led, 10) == 10


def test_who_is_out_of_sync_does_not_hold_the_mark() -> None:
    led = leading(isr=(1, 2))
    fetches(led, 2, 10, end=10, now=1)
    assert mark(led, 10) == 10
    fetches(led, 3, 4, end=10, now=1)
    assert mark(led, 10) == 10


def test_who_keeps_up_holds_the_mark_before_it_is_in_sync() -> None:
    led = leading(isr=(1,))
    fetches(led, 2, 10, end=10, now=1)
    assert mark(led, 12) == 10
    assert mark(led, 12, now=2.5) == 12


def test_a_follower_that_is_gone_does_not_hold_up_the_high_watermark() -> None:
    gone: set[int] = set()
    led = leading(isr=(1, 2), is_eligible=lambda node, _: node not in gone)
    for node in (2, 3):
        fetches(led, node, 10, end=10, now=1)
    fetches(led, 2, 12, end=12, now=1)
    assert mark(led, 12) == 10
    gone.add(3)
    assert mark(led, 12) == 12


def test_a_follower_is_asked_for_when_it_has_all_that_is_committed_and_counts_from_then_on() -> None:
    led = leading(isr=(1, 2))
    fetches(led, 2, 10, end=10, now=1)
    fetches(led, 3, 9, end=10, now=1)
    assert led.propose_expansion(3, high_watermark=10, own_epoch=10) is None
    fetches(led, 3, 10, end=12, now=2)
    proposal = led.propose_expansion(3, high_watermark=10, own_epoch=10)
    assert proposal == Proposal(isr=((1, 10), (2, 20), (3, 30)), leader_epoch=5, partition_epoch=7)
    fetches(led, 2, 12, end=12, now=2)
    assert mark(led, 12) == 10, "the controller may have agreed already"
    assert led.isr == (1, 2)


def test_a_follower_must_have_everything_of_earlier_epochs() -> None:
    led = leading(isr=(1, 2), start_offset=20)
    fetches(led, 3, 10, end=20, now=1)
    assert led.propose_expansion(3, high_watermark=10, own_epoch=10) is None


def test_a_broker_that_the_controller_would_refuse_is_not_asked_for() -> None:
    led = leading(isr=(1, 2), is_eligible=lambda _, epoch: epoch != 30)
    fetches(led, 3, 10, end=10, now=1)
    refuse = led.propose_expansion(3, high_watermark=10, own_epoch=10)
    assert refuse is None
    assert led.proposal is None


def test_one_thing_is_asked_at_a_time() -> None:
    led = leading(isr=(1,))
    for node in (2, 3):
        fetches(led, node, 10, end=10, now=1)
    assert led.propose_expansion(2, high_watermark=10, own_epoch=1)
    assert led.propose_expansion(3, high_watermark=10, own_epoch=1) is None
    assert led.propose_shrinking(now=1000, lag_max=LAG, end_offset=99, own_epoch=1) is None


def test_a_slow_follower_leaves_and_holds_the_mark_until_the_controller_agrees() -> None:
    led = leading()
    fetches(led, 2, 10, end=10, now=40)
    fetches(led, 3, 5, end=10, now=40)
    proposal = led.propose_shrinking(now=41, lag_max=LAG, end_offset=10, own_epoch=1)
    assert proposal is not None
    assert proposal.members == {1, 2}
    assert mark(led, 10, now=41) == 5
    assert led.apply_isr(isr=(1, 2), partition_epoch=8)
    assert mark(led, 10, now=41) == 10


def test_a_follower_that_gives_a_partition_up_leaves_soon_unless_it_gets_on() -> None:
    led = leading()
    for node in (2, 3):
        fetches(led, node, 10, end=10, now=1)
    led.followers[3].stopped_fetching(1.0)
    assert not list(led.laggards(now=2, lag_max=LAG, end_offset=11))
    assert list(led.laggards(now=4, lag_max=LAG, end_offset=11)) == [3]
    fetches(led, 3, 10, end=11, now=4)
    assert list(led.laggards(now=4, lag_max=LAG, end_offset=11)) == [3], "to ask for the same again is no progress"
    fetches(led, 3, 11, end=12, now=4)
    assert not list(led.laggards(now=4, lag_max=LAG, end_offset=12))


def test_a_follower_that_stops_fetching_leaves_sooner_than_a_slow_one() -> None:
    led = leading()
    for node in (2, 3):
        fetches(led, node, 10, end=10, now=1)
        led.followers[node].fell_behind()
    fetches(led, 2, 11, end=12, now=5)
    assert not list(led.laggards(now=5, lag_max=LAG, end_offset=12, silence_max=4.5))
    assert list(led.laggards(now=6, lag_max=LAG, end_offset=12, silence_max=4.5)) == [3]
    fetches(led, 3, 10, end=12, now=6)
    assert not list(led.laggards(now=7, lag_max=LAG, end_offset=12, silence_max=4.5))


def test_who_never_fetched_from_a_new_leader_is_silent_from_its_beginning_on() -> None:
    led = leading()
    fetches(led, 2, 10, end=10, now=4)
    assert not list(led.laggards(now=4.5, lag_max=LAG, end_offset=10, silence_max=4.5))
    assert list(led.laggards(now=4.6, lag_max=LAG, end_offset=10, silence_max=4.5)) == [3]


def test_a_silent_follower_that_has_everything_stays() -> None:
    led = leading()
    for node in (2, 3):
        fetches(led, node, 10, end=10, now=1)
    assert led.propose_shrinking(now=1000, lag_max=LAG, end_offset=10, own_epoch=1) is None


def test_a_follower_that_reads_what_there_was_at_its_last_fetch_keeps_up() -> None:
    led = leading()
    last_fetch = LastFetch()
    fetches(led, 2, 10, end=10, now=1, last_fetch=last_fetch)
    led.followers[2].fell_behind()
    for now in range(2, 100):
        fetches(led, 2, now * 10, end=now * 10 + 10, now=now, last_fetch=last_fetch)  # always one fetch behind
    assert led.followers[2].last_caught_up >= 97
    assert 2 not in set(led.laggards(now=100, lag_max=LAG, end_offset=2000))


def test_a_fetch_of_anything_shows_that_idle_partitions_are_kept_up_with() -> None:
    led = leading()
    last_fetch = LastFetch()
    fetches(led, 2, 10, end=10, now=1, last_fetch=last_fetch)
    last_fetch.at = 500.0
    led.followers[2].fell_behind()
    assert led.followers[2].last_caught_up == 500.0


def test_an_answer_that_is_older_than_the_image_changes_nothing() -> None:
    led = leading()
    assert led.apply_isr(isr=(1,), partition_epoch=9)
    assert not led.apply_isr(isr=(1, 2), partition_epoch=8)
    assert led.isr == (1,)


def test_a_refusal_of_an_older_proposal_leaves_the_present_one_alone() -> None:
    led = leading(isr=(1,))
    fetches(led, 2, 10, end=10, now=1)
    first = led.propose_expansion(2, high_watermark=10, own_epoch=1)
    assert first is not None
    led.apply_isr(isr=(1, 3), partition_epoch=8)
    second = led.propose_expansion(2, high_watermark=10, own_epoch=1)
    led.refused(first)
    assert led.proposal is second


def test_stepping_aside_keeps_an_expansion_under_way_in_the_maximal_set() -> None:
    led = leading(isr=(1, 2))
    fetches(led, 2, 10, end=10, now=1)
    fetches(led, 3, 10, end=10, now=1)
    expansion = led.propose_expansion(3, high_watermark=10, own_epoch=1)
    assert expansion is not None
    aside = led.propose_stepping_aside()
    assert aside is not None
    fetches(led, 2, 12, end=12, now=100)
    assert mark(led, 12, now=100) == 10, "the controller may count 3 as in sync already"
    led.refused(aside)
    assert led.proposal is expansion, "its outcome is still to be found out"
    assert mark(led, 12, now=100) == 10
    led.refused(expansion)
    assert mark(led, 12, now=100) == 12


def test_a_newer_state_settles_all_that_was_proposed_for_an_older_one() -> None:
    led = leading(isr=(1, 2))
    fetches(led, 3, 10, end=10, now=1)
    assert led.propose_expansion(3, high_watermark=10, own_epoch=1) is not None
    assert led.propose_stepping_aside() is not None
    assert led.apply_isr(isr=(1, 2), partition_epoch=8)
    assert led.maximal_isr == {1, 2}


@pytest.mark.parametrize(
    ("isr", "replicas", "minimum", "too_few"),
    [((1,), (1, 2, 3), 2, True), ((1, 2), (1, 2, 3), 2, False), ((1,), (1,), 2, False), ((1,), (1, 2), 3, True)],
)
def test_more_than_there_are_replicas_cannot_be_asked_for(
    isr: tuple[int, ...], replicas: tuple[int, ...], minimum: int, too_few: bool
) -> None:
    assert leading(isr=isr, replicas=replicas).too_few(minimum) is too_few


def test_new_replicas_are_followed_and_old_ones_forgotten() -> None:
    led = leading()
    fetches(led, 2, 10, end=10, now=1)
    led.reassigned(replicas=(1, 2, 4), now=2.0)
    assert set(led.followers) == {2, 4}
    assert led.followers[2].offset == 10


@dataclass
class FakeController:
    """Agrees, refuses, or agrees and lets the answer be lost: the image then tells."""

    isr: tuple[int, ...]
    partition_epoch: int
    history: list[frozenset[int]] = field(default_factory=list)

    def alter(self, proposal: Proposal) -> bool:
        if proposal.partition_epoch != self.partition_epoch:
            return False
        self.isr = tuple(node for node, _ in proposal.isr)
        self.partition_epoch += 1
        self.history.append(frozenset(self.isr))
        return True


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_what_is_below_the_mark_is_on_every_member_of_the_in_sync_set(seed: int) -> None:
    """The controller elects any member of its in-sync set at any time, whether the leader has heard of it or not."""
    random = Random(seed)
    led = leading(isr=(1, 2, 3))
    controller = FakeController(isr=led.isr, partition_epoch=led.partition_epoch)
    end, now, high_watermark = 0, 0.0, 0
    really = {2: 0, 3: 0}  # the ends of the followers' logs
    last_fetches = {2: LastFetch(), 3: LastFetch()}
    for _ in range(200):
        now += random.random() * 10
        action = random.choice(("append", "fetch", "fetch", "fetch", "shrink", "answer", "lose", "image", "refuse"))
        node = random.choice((2, 3))
        if action == "append":
            end += random.randint(1, 3)
            for each in led.followers.values():
                each.fell_behind()
        elif action == "fetch":
            fetches(led, node, really[node], end=end, now=now, last_fetch=last_fetches[node])
            if not led.too_few(2):
                high_watermark = max(high_watermark, led.high_watermark(end, now=now, lag_max=LAG))
            led.propose_expansion(node, high_watermark=high_watermark, own_epoch=1)
            really[node] = min(end, really[node] + random.randint(0, 5))  # what the answer brings
        elif action == "shrink":
            silence_max = random.choice((5.0, LAG))
            led.propose_shrinking(now=now, lag_max=LAG, end_offset=end, own_epoch=1, silence_max=silence_max)
        elif led.proposal is not None and action == "answer":
            proposal = led.proposal
            if controller.alter(proposal):
                led.apply_isr(isr=controller.isr, partition_epoch=controller.partition_epoch)
        elif led.proposal is not None and action == "lose":
            controller.alter(led.proposal)
        elif led.proposal is not None and action == "refuse" and controller.partition_epoch == led.partition_epoch:
            led.refused(led.proposal)
        elif action == "image":
            led.apply_isr(isr=controller.isr, partition_epoch=controller.partition_epoch)
        assert high_watermark <= end
        for member in controller.isr:
            assert member == LEADER or really[member] >= high_watermark, (action, member)
