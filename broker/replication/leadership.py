"""What a leader knows in one epoch: how far each follower has read, which are in sync, what the controller was asked.

No clock, no socket, no file: times are arguments (seconds, any monotonic clock), and what is to be asked of the
controller is a value. The rules are Kafka's: the high watermark is the least offset of the *maximal* in-sync set, which
counts members that were asked for but not granted yet (KIP-497), and it stands still while there are too few (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

UNKNOWN: Final = -1
OUTSIDE_SECONDS_MAX: Final = 1.0  # how long a replica that is nearly in sync can hold up the high watermark
STOPPED_SECONDS_MAX: Final = 2.0  # how long an in-sync follower may leave a partition out of its fetches
NEVER: Final = float("-inf")
FOR_EVER: Final = float("inf")


class LastFetch:
    """When a broker last fetched: one for all partitions that it follows here, so that a fetch need not touch each."""

    __slots__ = ("at",)

    def __init__(self, at: float = NEVER) -> None:
        self.at = at


class Follower:
    """One follower, as its fetches show it."""

    __slots__ = (
        "_end_when_fetched",
        "_last_fetch",
        "behind",
        "broker_epoch",
        "caught_up_at",
        "log_start_offset",
        "node_id",
        "offset",
        "stopped_at",
    )

    def __init__(self, node_id: int, *, now: float) -> None:
        self.node_id = node_id
        self.broker_epoch = UNKNOWN
        self.offset = UNKNOWN  # it has everything before this
        self.log_start_offset = UNKNOWN
        self.behind = True
        self.caught_up_at = now  # of a member of the ISR when we take over: it gets its time to be heard of
        self.stopped_at: float | None = None  # when it stopped fetching this partition, if it has not got on since
        self._end_when_fetched = UNKNOWN
        self._last_fetch = LastFetch(now)

    def fetched(
        self,
        *,
        offset: int,
        log_start_offset: int,
        end_offset: int,
        broker_epoch: int,
        now: float,
        last_fetch: LastFetch,
    ) -> None:
        """It asks for `offset` while our log ends at `end_offset`."""
        if offset > self.offset or offset >= end_offset:
            self.stopped_at = None  # to ask again is not enough: it must get on
        if offset >= end_offset:
            self.behind = False
            self.caught_up_at = now
        else:
            # It has read what there was when it asked before: then it was as good as caught up.
            if offset >= self._end_when_fetched >= 0:
                self.caught_up_at = max(self.caught_up_at, self._last_fetch.at)
            self.behind = True
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._end_when_fetched = end_offset
        self._last_fetch = last_fetch

    def fell_behind(self) -> None:
        """We appended: until now it was at the end, as of its last fetch."""
        if not self.behind:
            self.behind = True
            self.caught_up_at = max(self.caught_up_at, self._last_fetch.at)

    def stopped_fetching(self, now: float) -> None:
        """It fetches others, but this partition no more: its disk, say, is in trouble."""
        self.fell_behind()
        if self.stopped_at is None:
            self.stopped_at = now

    def is_stuck_at(self, offset: int) -> bool:
        """It gave the partition up, and comes back to the very place where it was."""
        return self.stopped_at is not None and offset == self.offset

    def is_silent(self, *, now: float, silence_max: float) -> bool:
        """It fetches nothing at all: it stands still, or cannot reach us. (A live one asks every half second.)"""
        return now - self._last_fetch.at > silence_max

    @property
    def last_caught_up(self) -> float:
        return self.caught_up_at if self.behind else max(self.caught_up_at, self._last_fetch.at)


class Proposal(NamedTuple):
    """An in-sync set that the controller is asked for."""

    isr: tuple[tuple[int, int], ...]  # (broker, its epoch)
    leader_epoch: int
    partition_epoch: int

    @property
    def members(self) -> frozenset[int]:
        return frozenset(node for node, _ in self.isr)


class Leadership:
    def __init__(
        self,
        *,
        node_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        start_offset: int,
        now: float,
        is_eligible: Callable[[int, int], bool] = lambda _node, _epoch: True,
    ) -> None:
        """`is_eligible(broker, epoch)`: whether the controller would have that life of a broker in sync."""
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.start_offset = start_offset  # where our log ended when the epoch began
        self.proposal: Proposal | None = None  # the latest, while the controller's answer to it is not known
        self._unanswered: list[Proposal] = []  # all whose outcome is not known: each may have been granted
        self.is_stepping_aside = False
        self.is_held_up = False  # the high watermark, by a replica that is not in sync: it passes soon
        self._is_eligible = is_eligible
        self.followers = {node: Follower(node, now=now) for node in replicas if node != node_id}
        for node, follower in self.followers.items():
            if node not in isr:
                follower.caught_up_at = NEVER
        self._counted: list[Follower] = []  # the maximal in-sync set without ourselves
        self._outside: list[Follower] = []
        self._sort()

    def _sort(self) -> None:
        maximal = set(self.isr).union(*(each.members for each in self._unanswered))
        self._counted = [each for node, each in self.followers.items() if node in maximal]
        self._outside = [each for node, each in self.followers.items() if node not in maximal]

    @property
    def is_alone(self) -> bool:
        return not self.followers

    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset((self.node_id, *(each.node_id for each in self._counted)))

    def too_few(self, min_insync_replicas: int) -> bool:
        return len(self.isr) < min(min_insync_replicas, len(self.replicas))

    # -- the high watermark ------------------------------------------------

    def high_watermark(self, own_end: int, *, now: float, lag_max: float) -> int:
        """Up to where every replica that counts has everything. A live one that keeps up counts before it is in sync,
        or under constant load none that is a step behind could ever come back."""
        offset = own_end
        for each in self._counted:
            if each.offset < offset:
                offset = each.offset
        self.is_held_up = False
        for each in self._outside:
            keeps_up = now - each.last_caught_up <= min(lag_max, OUTSIDE_SECONDS_MAX)
            if each.offset < offset and keeps_up and self._is_eligible(each.node_id, each.broker_epoch):
                offset = each.offset
                self.is_held_up = True
        return offset

    def low_watermark(self, own_start: int) -> int:
        """The first offset that some live replica may still have (DeleteRecords)."""
        starts = [each.log_start_offset for node, each in self.followers.items() if self._is_eligible(node, UNKNOWN)]
        return min(own_start, *starts) if starts else own_start

    # -- the in-sync set ---------------------------------------------------

    def propose_expansion(self, node: int, *, high_watermark: int, own_epoch: int) -> Proposal | None:
        """After a fetch of `node`: it joins once it has all that is committed, and all of earlier epochs."""
        follower = self.followers.get(node)
        if follower is None or node in self.isr or self.proposal is not None:
            return None
        if follower.offset < max(high_watermark, self.start_offset) or not self._is_eligible(
            node, follower.broker_epoch
        ):
            return None
        return self._propose([*self.isr, node], own_epoch)

    def propose_shrinking(
        self, *, now: float, lag_max: float, end_offset: int, own_epoch: int, silence_max: float = FOR_EVER
    ) -> Proposal | None:
        """A replica that has not been at our end for too long leaves."""
        if self.proposal is not None:
            return None
        slow = set(self.laggards(now=now, lag_max=lag_max, end_offset=end_offset, silence_max=silence_max))
        return self._propose([node for node in self.isr if node not in slow], own_epoch) if slow else None

    def another_has_more_than(self, offset: int) -> bool:
        """Whether another replica in sync has what is beyond an offset, on its disk if the topic asks for that."""
        others = (self.followers.get(node) for node in self.isr if node != self.node_id)
        return any(follower is not None and follower.offset > offset for follower in others)

    def propose_stepping_aside(self) -> Proposal | None:
        """Our disk fails us: let another lead that is in sync."""
        others = [node for node in self.isr if node != self.node_id]
        if not others or (self.proposal is not None and self.node_id not in self.proposal.members):
            return None
        self.is_stepping_aside = True
        return self._propose(others, UNKNOWN)

    def laggards(self, *, now: float, lag_max: float, end_offset: int, silence_max: float = FOR_EVER) -> Iterator[int]:
        """A replica that has everything is in sync, silent or not: the controller decides whether its broker lives."""
        for node in self.isr:
            follower = self.followers.get(node)
            if follower is None or follower.offset == end_offset:
                continue
            has_stopped = follower.stopped_at is not None and now - follower.stopped_at > STOPPED_SECONDS_MAX
            is_silent = follower.is_silent(now=now, silence_max=silence_max)
            if has_stopped or is_silent or now - follower.last_caught_up > lag_max:
                yield node

    def _propose(self, isr: Sequence[int], own_epoch: int) -> Proposal:
        epochs = {self.node_id: own_epoch, **{node: each.broker_epoch for node, each in self.followers.items()}}
        self.proposal = Proposal(
            tuple((node, epochs.get(node, UNKNOWN)) for node in isr), self.leader_epoch, self.partition_epoch
        )
        self._unanswered.append(self.proposal)
        self._sort()
        return self.proposal

    def apply_isr(self, *, isr: Sequence[int], partition_epoch: int) -> bool:
        """The controller's word, by answer or by the metadata log, whichever comes first. True if it is news."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.proposal = None
        self._unanswered.clear()  # made for an earlier state: if they were not granted yet, they never will be
        self._sort()
        return True

    def refused(self, proposal: Proposal) -> None:
        """The controller will not do it, for certain: what was asked for does not count any more."""
        self._unanswered = [each for each in self._unanswered if each is not proposal]
        if self.proposal is proposal:
            self.proposal = self._unanswered[-1] if self._unanswered else None
        self._sort()

    def reassigned(self, *, replicas: Sequence[int], now: float) -> None:
        """Replicas came or went."""
        if self.replicas == tuple(replicas):
            return
        self.replicas = tuple(replicas)
        kept = {node: self.followers.get(node) for node in replicas if node != self.node_id}
        self.followers = {}
        for node, follower in kept.items():
            if follower is None:
                follower = Follower(node, now=now)
                if node not in self.isr:
                    follower.caught_up_at = NEVER
            self.followers[node] = follower
        self._sort()
