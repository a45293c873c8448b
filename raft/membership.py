"""Changes of the quorum: one member at a time, each an entry of the log.

Two majorities, of the configuration before a change and of the one after it, share a node only if the change is by one
voter; and only if the one before it is committed can no third configuration be in force anywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.raft.configuration import NO_DIRECTORY, Configuration, Member
from tidemark.raft.entry import Kind
from tidemark.raft.errors import ChangePending, DirectoryChanged, NotCaughtUp, TransferPending, UnknownMember

if TYPE_CHECKING:
    from tidemark.raft.leader import Leader
    from tidemark.raft.node import Node


def add_learner(node: Node, node_id: int, *, detail: bytes, directory_id: bytes) -> int:
    leader = node.leader()
    if node.configuration.member(node_id) is not None:
        raise UnknownMember(f"node {node_id} is a member already")
    member = Member(node_id=node_id, is_voter=False, detail=detail, directory_id=directory_id)
    return _propose(node, leader, node.configuration.with_member(member))


def add_voter(node: Node, node_id: int) -> int:
    """A learner that has caught up becomes a voter."""
    leader = node.leader()
    if node_id not in node.configuration.learners:
        raise UnknownMember(f"node {node_id} is not a learner")
    # A leader that gave up its vote may be asked to take it again before it hands over.
    match_index = node.log.last_index if node_id == node.id else leader.peers[node_id].match_index
    lag = node.log.last_index - match_index
    # A node that has never answered may be dead: with its vote the others could be too few, however short the log is.
    if match_index == 0 or lag > node.settings.catch_up_entries_max:
        raise NotCaughtUp(f"node {node_id} lacks {lag} entries")
    return _propose(node, leader, node.configuration.with_voter(node_id))


def update_member(node: Node, node_id: int, *, detail: bytes, directory_id: bytes | None) -> int:
    """Change where a member is reached, or note its directory. A vote never moves to another directory: a voter that
    lost its disk has forgotten its promises, so it must be removed and added again."""
    leader = node.leader()
    member = node.configuration.member(node_id)
    if member is None:
        raise UnknownMember(f"node {node_id} is not a member")
    directory_id = member.directory_id if directory_id is None else directory_id
    if member.is_voter and member.directory_id not in (NO_DIRECTORY, directory_id):
        raise DirectoryChanged(f"node {node_id} has a vote with another directory: remove it, and add it again")
    changed = replace(member, detail=detail, directory_id=directory_id)
    return _propose(node, leader, node.configuration.with_member(changed))


def remove_member(node: Node, node_id: int) -> int:
    """Also the leader itself: it leads until its removal is committed, without counting itself."""
    leader = node.leader()
    configuration = node.configuration.without(node_id)
    if not configuration.voters:
        raise UnknownMember("the last voter cannot be removed")
    return _propose(node, leader, configuration)


def _propose(node: Node, leader: Leader, configuration: Configuration) -> int:
    if leader.transfer_to is not None:
        raise TransferPending(f"leadership is being handed to node {leader.transfer_to}")
    if node.configuration_index > node.commit_index:
        raise ChangePending("the change before this one is not committed")
    # An older leader's change may be in some log; only an entry of this term rules it out (raft-dev, July 2015).
    if node.commit_index < leader.no_op_index:
        raise ChangePending("this leader has not committed an entry of its term")
    return leader.append(configuration.encode(), kind=Kind.CONFIGURATION)
