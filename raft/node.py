"""One member of the quorum as a state machine: messages and time in, effects out. No clock, no socket, no file.

    node.step(message, now)      effects = node.take()       # then: save, node.saved(effects), send, apply
    node.tick(now)               node.take_urgent()          # a leader's messages, which need not wait for the disk
    node.propose(payload)        node.take_decided()         # likewise: what to apply while a save is under way

The parts of the roles are in follower.py, candidate.py and leader.py; what each role knows goes when the role ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from tidemark.raft import membership
from tidemark.raft.candidate import Candidate
from tidemark.raft.configuration import NO_DIRECTORY, Configuration, ConfigurationHistory
from tidemark.raft.effects import Addressed, Effects
from tidemark.raft.entry import Entry, HardState, Kind, Saved, Snapshot
from tidemark.raft.errors import NotLeader, StaleEpoch, UnknownMember
from tidemark.raft.follower import Follower
from tidemark.raft.leader import Leader
from tidemark.raft.log import Log
from tidemark.raft.messages import (
    AppendAccepted,
    AppendEntries,
    AppendRejected,
    InstallSnapshot,
    Message,
    PreVoteResponse,
    RequestPreVote,
    RequestVote,
    SnapshotResponse,
    TimeoutNow,
    VoteResponse,
)
from tidemark.raft.progress import Replica
from tidemark.raft.settings import RaftSettings

DEFAULTS = RaftSettings()
ANSWERS = (PreVoteResponse, VoteResponse, AppendAccepted, AppendRejected, SnapshotResponse)
NOTHING = Saved()
NO_EFFECTS = Effects()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The leader and its epoch (the term): what is decided under an older epoch is void."""

    leader_id: int
    epoch: int


class Node:
    """`voters` are those of a new cluster; a node that joins one begins with none. What was saved says otherwise."""

    def __init__(
        self,
        node_id: int,
        voters: Iterable[int] | Configuration,
        *,
        random: Random,
        now: float = 0.0,
        settings: RaftSettings = DEFAULTS,
        saved: Saved = NOTHING,
    ) -> None:
        self.id = node_id
        self.random = random
        self.settings = settings
        self.now = now
        self.term = saved.hard_state.term
        self.vote = saved.hard_state.vote
        self.leader_id: int | None = None
        self.snapshot = saved.snapshot
        first = voters if isinstance(voters, Configuration) else Configuration.of(voters)
        base_index = base_term = 0
        if saved.snapshot is not None:
            base_index, base_term = saved.snapshot.index, saved.snapshot.term
            if saved.snapshot.configuration.members:
                first = saved.snapshot.configuration
        self._configurations = ConfigurationHistory(first, index=base_index)
        self.log = Log(saved.entries, base_index=base_index, base_term=base_term)
        assert self.log.last_term <= self.term, "a term is saved before the entries of it"
        self._note_configurations(saved.entries)
        self.commit_index = self.applied_index = base_index
        self._restore = saved.snapshot
        self._unsaved_snapshot: Snapshot | None = None
        self._hard_state = saved.hard_state  # as last handed out to be saved
        self._after_save: list[Addressed] = []
        self._urgent: list[Addressed] = []
        self._last_token = 0
        self._saving_since: float | None = None  # when what is being saved was handed out
        # Under leases a restarted node must keep the promise it may have made just before: not to vote so soon.
        self._heard_leader_at = now if settings.lease_reads else float("-inf")
        self.role: Follower | Candidate | Leader = Follower(self)

    # What others may know

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self.id in self.configuration.voters

    @property
    def may_campaign(self) -> bool:
        """A voter may; also one whose removal may not be committed: only its log may hold enough to win (Raft §4.2.2).

        It then leads without counting itself, and leaves as soon as it has committed something.
        """
        if self.is_voter:
            return True
        is_decided = self.configuration_index <= self.commit_index
        # After a restart the commit index lags, so any configuration after it may be the committed one.
        return not is_decided and self._configurations.was_voter_since(self.id, index=self.commit_index)

    @property
    def is_disk_stalled(self) -> bool:
        """Whether a save is under way for so long that another node should lead, if there is another.

        A leader's heartbeats do not wait for its disk, so without this a leader whose disk is full or hangs would keep
        the lead and decide nothing.
        """
        if self._saving_since is None or self.now < self._saving_since + self.settings.save_timeout:
            return False
        return self.configuration.voters != (self.id,)

    @property
    def configuration(self) -> Configuration:
        """The newest in the log: it is in force from the moment it is appended (Raft §4.1)."""
        return self._configurations.current

    @property
    def configuration_index(self) -> int:
        return self._configurations.index

    def configuration_before(self, index: int) -> Configuration:
        return self._configurations.at(index - 1)

    @property
    def deadline(self) -> float:
        """When `tick` has something to do, if nothing else happens before."""
        return self.role.deadline

    def get_leader(self) -> Leadership | None:
        return None if self.leader_id is None else Leadership(leader_id=self.leader_id, epoch=self.term)

    # Input

    def step(self, message: Message, now: float) -> None:
        self._advance_clock(now)
        if self.why_refused(message) is not None:
            return
        if isinstance(message, RequestPreVote):
            self.request_pre_vote(message)
        elif isinstance(message, RequestVote):
            self.request_vote(message)
        elif message.term > self.term:
            self.become_follower(message.term, leader_id=None)
            self._step_current(message)
        elif message.term == self.term or isinstance(message, PreVoteResponse):
            self._step_current(message)  # a pre-vote comes from a node whose term may lag: asking did not change it
        elif isinstance(message, AppendEntries | InstallSnapshot):
            self._refuse_old_leader(message)

    def why_refused(self, message: Message) -> str | None:
        """What no member of this quorum can have sent; None if it may be genuine.

        Entries and requests for votes may come from a member that was added while this node was away, so they are not
        refused here by their sender: the transport knows more about it. Answers come only from nodes that were asked.
        """
        if message.sender == self.id:
            return "it claims to be from this node"
        if message.term > self.term + self.settings.term_jump_max:
            return f"its term is {message.term}, and elections cannot have led there from term {self.term}"
        if isinstance(message, ANSWERS) and not self.knows(message.sender):
            return "it answers, and its sender is no member of the quorum"
        return None

    def knows(self, node_id: int) -> bool:
        """Whether a node is, or lately was, a member."""
        return self._configurations.knows(node_id)

    def _step_current(self, message: Message) -> None:
        role = self.role
        if isinstance(message, AppendEntries):
            self.append_entries(message)
        elif isinstance(message, InstallSnapshot):
            self.install_snapshot(message)
        elif isinstance(message, TimeoutNow):
            self._timeout_now(message)
        elif isinstance(role, Leader):
            self._step_leader(role, message)
        elif isinstance(role, Candidate):
            self._step_candidate(role, message)

    def _step_leader(self, leader: Leader, message: Message) -> None:
        if isinstance(message, AppendAccepted):
            leader.append_accepted(message)
        elif isinstance(message, AppendRejected):
            leader.append_rejected(message)
        elif isinstance(message, SnapshotResponse):
            leader.snapshot_response(message)

    def _step_candidate(self, candidate: Candidate, message: Message) -> None:
        if isinstance(message, PreVoteResponse):
            if candidate.is_pre_vote and message.asked_term == self.term:
                candidate.count(message.sender, granted=message.granted)
        elif isinstance(message, VoteResponse) and not candidate.is_pre_vote:
            candidate.count(message.sender, granted=message.granted)

    def tick(self, now: float) -> None:
        self._advance_clock(now)
        self.role.tick(self.now)

    def propose(self, payload: bytes, *, epoch: int | None = None) -> int:
        """Append an entry; it is decided when an entry of this index and term is committed."""
        leader = self.leader()
        if epoch is not None and epoch != self.term:
            raise StaleEpoch(f"decided in epoch {epoch}, but this is epoch {self.term}")
        return leader.propose(payload)

    def read(self, now: float) -> int:
        """Ask for an index to read at; its `ReadReady` carries the token returned here, or never comes."""
        self._advance_clock(now)
        leader = self.leader()
        self._last_token += 1
        leader.read(self._last_token)
        return self._last_token

    def transfer_leadership(self, target: int, now: float) -> None:
        self._advance_clock(now)
        leader = self.leader()
        if target not in self.configuration.voters:
            raise UnknownMember(f"node {target} is not a voter")
        if target != self.id:
            leader.transfer(target)

    def add_learner(self, node_id: int, *, detail: bytes = b"", directory_id: bytes = NO_DIRECTORY) -> int:
        return membership.add_learner(self, node_id, detail=detail, directory_id=directory_id)

    def add_voter(self, node_id: int) -> int:
        return membership.add_voter(self, node_id)

    def update_member(self, node_id: int, *, detail: bytes, directory_id: bytes | None = None) -> int:
        return membership.update_member(self, node_id, detail=detail, directory_id=directory_id)

    def remove_member(self, node_id: int) -> int:
        return membership.remove_member(self, node_id)

    def leader(self) -> Leader:
        if not isinstance(self.role, Leader):
            raise NotLeader(self.leader_id)
        return self.role

    def replicas(self) -> list[Replica]:
        """All members and how far each has come; only a leader knows."""
        return self.leader().replicas()

    def lose_leader(self, leader_id: int, now: float) -> None:
        """The connection to the leader broke: look for another soon. It takes a majority that lost it to elect one."""
        self._advance_clock(now)
        if self.leader_id != leader_id or not isinstance(self.role, Follower) or self.settings.lease_reads:
            return
        self.leader_id = None
        self._heard_leader_at = float("-inf")
        self.role.wait_until(self.now + self.settings.heartbeat_interval * self.random.random())

    def _advance_clock(self, now: float) -> None:
        self.now = max(self.now, now)  # a clock that is set back must not make a lease longer

    # Output

    def take_urgent(self) -> list[Addressed]:
        """Messages that depend on nothing that is not saved yet."""
        self.role.flush()
        urgent, self._urgent = self._urgent, []
        return urgent

    def take(self) -> Effects:
        """What has to be done now. Save it, call `saved` with it, and only then take again."""
        self.role.flush()
        if not self._has_effects():
            return NO_EFFECTS
        hard_state = None
        if self._hard_state_changed():
            hard_state = self._hard_state = HardState(term=self.term, vote=self.vote)
        messages, self._after_save = tuple(self._after_save), []
        snapshot, self._unsaved_snapshot = self._unsaved_snapshot, None
        restore, self._restore = self._restore, None
        effects = Effects(
            hard_state=hard_state,
            snapshot=snapshot,
            entries=self.log.take_unsaved(),
            messages=messages,
            restore=restore,
            committed=self._take_committed(),
            reads=self.role.take_reads(),
        )
        if effects.must_save:
            self._saving_since = self.now
        return effects

    def take_decided(self) -> Effects:
        """What is committed, and reads that may be answered, while what `take` gave out is being saved: a majority has
        it on disk, so this node's own disk is not waited for. Nothing, if a snapshot must be restored first."""
        if self._restore is not None or not (self.applied_index < self.commit_index or self.role.has_reads):
            return NO_EFFECTS
        return Effects(committed=self._take_committed(), reads=self.role.take_reads())

    def _has_effects(self) -> bool:
        return (
            bool(self._after_save)
            or self.applied_index < self.commit_index
            or self.log.has_unsaved
            or self._hard_state_changed()
            or self._unsaved_snapshot is not None
            or self._restore is not None
            or self.role.has_reads
        )

    def _hard_state_changed(self) -> bool:
        return self._hard_state.term != self.term or self._hard_state.vote != self.vote

    def _take_committed(self) -> tuple[Entry, ...]:
        if self.applied_index >= self.commit_index:
            return ()
        entries = self.log.between(
            first=self.applied_index + 1,
            last=self.commit_index,
            bytes_max=self.settings.apply_bytes_max,
            entries_max=self.settings.append_entries_max,
        )
        self.applied_index = entries[-1].index
        return entries

    def saved(self, effects: Effects) -> None:
        """The disk holds what `take` gave out."""
        self._saving_since = None
        if effects.snapshot is not None:
            self.log.saved_up_to(index=effects.snapshot.index, term=effects.snapshot.term)
        if effects.entries:
            last = effects.entries[-1]
            self.log.saved_up_to(index=last.index, term=last.term)
        self.role.saved(effects)

    def send_now(self, to: int, message: Message) -> None:
        self._urgent.append((to, message))

    def send_after_save(self, to: int, message: Message) -> None:
        """Once everything that this message may speak of is saved."""
        self._after_save.append((to, message))

    # Roles

    def become_follower(self, term: int, *, leader_id: int | None) -> None:
        self._advance_term(term)
        self.leader_id = leader_id
        self.role = Follower(self)

    def become_pre_candidate(self) -> None:
        if not self.may_campaign or self.is_disk_stalled:
            self.become_follower(self.term, leader_id=None)
            return
        assert not self.is_leader, "invalid transition: leader -> pre-candidate"
        self.leader_id = None
        self.role = candidate = Candidate(self, is_pre_vote=True)
        candidate.ask()
        candidate.count(self.id, granted=True)

    def become_candidate(self, *, forced: bool = False) -> None:
        assert not self.is_leader, "invalid transition: leader -> candidate"
        assert self.may_campaign, "only a voter stands for election"
        self._advance_term(self.term + 1)
        self._cast_vote(self.id)
        self.leader_id = None
        self.role = candidate = Candidate(self, is_pre_vote=False)
        candidate.ask(forced=forced)  # its own vote counts once it is saved

    def become_leader(self) -> None:
        role = self.role
        assert isinstance(role, Candidate), f"invalid transition: {type(role).__name__} -> leader"
        assert not role.is_pre_vote, "invalid transition: pre-candidate -> leader"
        assert self.vote == self.id, "a leader has voted for itself"
        self.leader_id = self.id
        self.role = Leader(self)

    def _advance_term(self, term: int) -> None:
        assert term >= self.term, f"terms never go back: {self.term} -> {term}"
        if term > self.term:
            self.term, self.vote = term, None

    def _cast_vote(self, candidate: int) -> None:
        assert self.vote in (None, candidate), f"node {self.id} has voted for {self.vote} in term {self.term}"
        self.vote = candidate

    # Votes

    @property
    def promised_until(self) -> float:
        """Until then the last leader heard from may count on this node: it helps no other node to be elected."""
        return self._heard_leader_at + self.settings.election_timeout

    def _hears_a_leader(self) -> bool:
        return self.is_leader or self.now < self.promised_until

    def request_pre_vote(self, message: RequestPreVote) -> None:
        granted = (
            message.term >= self.term
            and not self._hears_a_leader()
            and self.log.is_up_to_date(last_index=message.last_index, last_term=message.last_term)
        )
        response = PreVoteResponse(sender=self.id, term=self.term, granted=granted, asked_term=message.term)
        self.send_after_save(message.sender, response)

    def request_vote(self, message: RequestVote) -> None:
        if self._hears_a_leader() and not message.forced:
            return  # not even the term is taken over: a removed or cut-off node cannot disturb (Raft §4.2.3)
        if message.term > self.term:
            self.become_follower(message.term, leader_id=None)
        granted = (
            message.term == self.term
            and self.vote in (None, message.sender)
            and self.log.is_up_to_date(last_index=message.last_index, last_term=message.last_term)
        )
        if granted:
            self._cast_vote(message.sender)
            if isinstance(self.role, Follower):
                self.role.wait_anew()
        self.send_after_save(message.sender, VoteResponse(sender=self.id, term=self.term, granted=granted))

    def _timeout_now(self, message: TimeoutNow) -> None:
        may_stand = self.may_campaign and not self.is_disk_stalled
        if may_stand and not self.is_leader and self.leader_id in (None, message.sender):
            self.become_candidate(forced=True)

    # The log

    def append_entries(self, message: AppendEntries) -> None:
        if (follower := self._follow(message.sender)) is not None:
            follower.append_entries(message)

    def install_snapshot(self, message: InstallSnapshot) -> None:
        if (follower := self._follow(message.sender)) is not None:
            follower.install_snapshot(message)

    def _follow(self, leader_id: int) -> Follower | None:
        """A message of this term's leader arrived; None if it cannot be that."""
        if self.is_leader:
            return None
        if not isinstance(self.role, Follower):
            self.role = Follower(self)
        self.leader_id = leader_id
        self._heard_leader_at = self.now
        self.role.wait_anew()
        return self.role

    def _refuse_old_leader(self, message: AppendEntries | InstallSnapshot) -> None:
        """Its term is over: it learns that from the newer term in the answer. That answers no round: the same node may
        lead the newer term, and its rounds are counted anew."""
        response = AppendRejected(
            sender=self.id, term=self.term, prev_index=0, conflict_index=0, conflict_term=0, round=0
        )
        self.send_after_save(message.sender, response)

    def append(self, entries: Sequence[Entry]) -> None:
        self.log.append(entries)
        self._note_configurations(entries)

    def truncate_from(self, index: int) -> None:
        assert index > self.commit_index, "a committed entry is never replaced"
        self.log.truncate_from(index)
        self._configurations.truncate_from(index)

    def _note_configurations(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.kind is Kind.CONFIGURATION:
                self._configurations.add(Configuration.decode(entry.payload), index=entry.index)

    def commit_to(self, index: int) -> None:
        assert index <= self.log.last_index, "the commit index is never beyond the log"
        self.commit_index = max(self.commit_index, index)

    def compact(self, *, index: int, data: bytes) -> None:
        """`data` is the state machine after the entry `index`, which was handed out as committed."""
        term = self.log.term_at(index)
        if term is None or index > self.applied_index or (self.snapshot is not None and index <= self.snapshot.index):
            raise ValueError(f"no snapshot can be made at {index}: applied up to {self.applied_index}")
        snapshot = Snapshot(index=index, term=term, configuration=self._configurations.at(index), data=data)
        self.snapshot = self._unsaved_snapshot = snapshot
        self.log.compact(up_to=index, kept=self.settings.entries_kept)
        self._configurations.compact_to(self.log.base_index)

    def restore(self, snapshot: Snapshot) -> None:
        """A snapshot from the leader takes the place of the log."""
        assert snapshot.index > self.commit_index, "what is committed is never taken back"
        self.log.restart_after(index=snapshot.index, term=snapshot.term)
        self._configurations = ConfigurationHistory(snapshot.configuration, index=snapshot.index)
        self.commit_index = self.applied_index = snapshot.index
        self.snapshot = self._unsaved_snapshot = self._restore = snapshot
