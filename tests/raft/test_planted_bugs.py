"""A test of the tests: bugs that Raft implementations have had, planted one at a time, must each be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from raft_simulation import faults, run_seed
from raft_simulation.disk import Disk
from raft_simulation.faults import FAULTS, Fault

from tidemark.raft import Configuration, HardState, Node, ReadReady, Snapshot, membership
from tidemark.raft.entry import Entry, Kind
from tidemark.raft.follower import Follower
from tidemark.raft.leader import Leader
from tidemark.raft.log import Log
from tidemark.raft.messages import AppendEntries

SEEDS_MAX = 500


def forget_vote(self: Disk, state: HardState) -> None:
    self.hard_state = HardState(term=state.term)


def commit_old_term(self: Leader) -> None:
    node = self._node
    if (index := majority_holds(self, own=node.log.persisted_index)) > node.commit_index:
        node.commit_to(index)


def count_itself_unsynced(self: Leader) -> None:
    node = self._node
    index = majority_holds(self, own=node.log.last_index)
    if index > node.commit_index and node.log.term_at(index) == node.term:
        node.commit_to(index)


def majority_holds(self: Leader, *, own: int) -> int:
    node = self._node
    voters = node.configuration.voters
    return node.configuration.agreed([own if voter == node.id else self.peers[voter].match_index for voter in voters])


def read_without_asking(self: Leader, token: int) -> None:
    self.reads.answer(ReadReady(token=token, index=max(self._node.commit_index, self.no_op_index)))


def read_before_own_commit(self: Leader, token: int) -> None:
    self.reads.wait(ReadReady(token=token, index=self._node.commit_index))


def lease_in_spite_of_transfer(self: Leader) -> bool:
    node, start = self._node, self.reads.lease_start
    return node.settings.lease_reads and start is not None and node.now < start + node.settings.lease


def change_without_waiting(node: Node, leader: Leader, configuration: Configuration) -> int:
    return leader.append(configuration.encode(), kind=Kind.CONFIGURATION)


def always_truncate(self: Follower, entries: tuple[Entry, ...]) -> None:
    node = self._node
    if entries and entries[0].index > node.commit_index:
        if entries[0].index <= node.log.last_index:
            node.truncate_from(entries[0].index)
        node.append(entries)


def commit_what_the_leader_did(self: Follower, message: AppendEntries) -> None:
    node = self._node
    if message.prev_index < node.commit_index:
        self._accept(message, match_index=node.commit_index)
    elif not node.log.matches(index=message.prev_index, term=message.prev_term):
        self._reject(message)
    else:
        self._append_missing(message.entries)
        node.commit_to(min(message.commit_index, node.log.last_index))
        self._accept(message, match_index=message.prev_index + len(message.entries))


def vote_for_anyone(self: Log, *, last_index: int, last_term: int) -> bool:
    return True


def vote_a_living_leader_out(self: Node) -> bool:
    return self.is_leader


restore_all = Node.restore


def restore_but_the_configuration(self: Node, snapshot: Snapshot) -> None:
    configurations = self._configurations
    restore_all(self, snapshot)
    self._configurations = configurations


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    owner: Any
    name: str
    replacement: Callable[..., Any]
    faults: list[Fault]
    expected: str


BUGS = [
    Bug(owner=Disk, name="save_hard_state", replacement=forget_vote, faults=FAULTS, expected="vote|safety"),
    Bug(owner=Leader, name="maybe_commit", replacement=commit_old_term, faults=FAULTS, expected="."),
    Bug(owner=Leader, name="maybe_commit", replacement=count_itself_unsynced, faults=FAULTS, expected="durability"),
    Bug(owner=Node, name="send_after_save", replacement=Node.send_now, faults=FAULTS, expected="durability|vote"),
    Bug(
        owner=Leader,
        name="read",
        replacement=read_without_asking,
        faults=[faults.cut_off_leader, faults.heal, faults.pause_leader],
        expected="stale read",
    ),
    Bug(owner=Leader, name="read", replacement=read_before_own_commit, faults=FAULTS, expected="stale read"),
    Bug(
        owner=Leader,
        name="has_lease",
        replacement=lease_in_spite_of_transfer,
        faults=[faults.transfer_and_deafen, faults.heal],
        expected="stale read",
    ),
    Bug(
        owner=Node,
        name="_hears_a_leader",
        replacement=vote_a_living_leader_out,
        faults=[faults.cut_leader_from_one, faults.cut_leader_from_one, faults.deafen_leader, faults.heal],
        expected="stale read",
    ),
    Bug(
        owner=membership,
        name="_propose",
        replacement=change_without_waiting,
        faults=[faults.change_members_apart, faults.change_members, faults.heal, faults.partition],
        expected=".",
    ),
    Bug(owner=Follower, name="_append_missing", replacement=always_truncate, faults=FAULTS, expected="."),
    Bug(
        owner=Follower, name="append_entries", replacement=commit_what_the_leader_did, faults=FAULTS, expected="safety"
    ),
    Bug(owner=Log, name="is_up_to_date", replacement=vote_for_anyone, faults=FAULTS, expected="completeness"),
    Bug(
        owner=Node,
        name="restore",
        replacement=restore_but_the_configuration,
        faults=FAULTS,
        expected="another configuration",
    ),
]


def run_until_caught(bug: Bug) -> None:
    for seed in range(SEEDS_MAX):
        try:
            run_seed(seed, faults=bug.faults)
        except KeyError as error:  # a node that finds itself in an impossible state breaks, and that is caught too
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.replacement.__name__)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug.owner, bug.name, bug.replacement)
    with pytest.raises(AssertionError, match=bug.expected):
        run_until_caught(bug)
