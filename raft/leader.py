"""The leader's part: replicate, commit, prove that it still leads, hand over.

A leader's own messages may leave before its own entries are on disk (Raft §10.2.1): its term was saved before it asked
for votes, and it counts itself towards a commit only by what the disk holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.raft.effects import Effects, ReadReady
from tidemark.raft.entry import Entry, Kind
from tidemark.raft.errors import Overloaded, TransferPending
from tidemark.raft.messages import (
    AppendAccepted,
    AppendEntries,
    AppendRejected,
    InstallSnapshot,
    SnapshotResponse,
    TimeoutNow,
)
from tidemark.raft.progress import Progress, Replica, State
from tidemark.raft.reads import Reads

if TYPE_CHECKING:
    from tidemark.raft.node import Node


class Leader:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.heartbeat_at = node.now
        self.reads = Reads(waiting_max=node.settings.reads_max)
        self.peers: dict[int, Progress] = {}
        self.uncommitted_bytes = node.log.payload_bytes(after=node.commit_index, up_to=node.log.last_index)
        self.transfer_to: int | None = None
        self._transfer_until = 0.0
        self._is_asked = False
        self._has_called_election = False
        self.reconfigure()
        # An entry of an older term is committed only by one of this term after it (Raft §5.4.2).
        self.no_op_index = self.append(b"", kind=Kind.NO_OP)

    @property
    def deadline(self) -> float:
        return self.heartbeat_at

    # Proposals

    def propose(self, payload: bytes) -> int:
        settings = self._node.settings
        if self.transfer_to is not None:
            raise TransferPending(f"leadership is being handed to node {self.transfer_to}")
        if len(payload) > settings.entry_bytes_max:
            raise Overloaded(f"an entry of {len(payload)} bytes exceeds {settings.entry_bytes_max}")
        if self.uncommitted_bytes and self.uncommitted_bytes + len(payload) > settings.uncommitted_bytes_max:
            raise Overloaded(f"{self.uncommitted_bytes} bytes are not committed yet")
        return self.append(payload, kind=Kind.DATA)

    def append(self, payload: bytes, *, kind: Kind) -> int:
        node = self._node
        entry = Entry(node.term, node.log.last_index + 1, payload, kind)
        node.append([entry])
        self.uncommitted_bytes += len(payload)
        if kind is Kind.CONFIGURATION:
            self.reconfigure()
        return entry.index

    def reconfigure(self) -> None:
        """Follow the configuration in force: peers come and go."""
        node = self._node
        others = [member.node_id for member in node.configuration.members if member.node_id != node.id]
        for node_id in others:
            if node_id not in self.peers:
                self.peers[node_id] = Progress(next_index=node.log.last_index + 1, now=node.now)
        for node_id in [node_id for node_id in self.peers if node_id not in others]:
            del self.peers[node_id]

    # Commit

    def saved(self, effects: Effects) -> None:
        if effects.must_save:
            self.maybe_commit()

    def maybe_commit(self) -> None:
        node = self._node
        own, peers = node.log.persisted_index, self.peers
        matched = [own if voter == node.id else peers[voter].match_index for voter in node.configuration.voters]
        index = node.configuration.agreed(matched)
        # Counting replicas commits entries of the own term only; those before them are committed with them.
        if index <= node.commit_index or node.log.term_at(index) != node.term:
            return
        self.uncommitted_bytes -= node.log.payload_bytes(after=node.commit_index, up_to=index)
        node.commit_to(index)
        if node.id not in node.configuration.voters and node.configuration_index <= index:
            self.flush()  # the others learn that the removal of this leader is committed
            self._resign()

    def _resign(self) -> None:
        """Step down, and ask the voter that holds most to take over at once."""
        node = self._node
        voters = [voter for voter in node.configuration.voters if voter != node.id]
        if voters:
            heir = max(voters, key=lambda voter: (self.peers[voter].match_index, -voter))
            node.send_now(heir, TimeoutNow(sender=node.id, term=node.term))
        node.become_follower(node.term, leader_id=None)

    # Time

    def tick(self, now: float) -> None:
        if now < self.heartbeat_at:
            return
        if not self.check_quorum(now):
            self._node.become_follower(self._node.term, leader_id=None)
            return
        if self._node.is_disk_stalled:
            self._resign()
            return
        self.heartbeat_at = now + self._node.settings.heartbeat_interval
        if self.transfer_to is not None and now >= self._transfer_until:
            self.transfer_to = None
        for peer in self.peers.values():
            peer.heartbeat()
        self.reads.is_wanted = True  # every heartbeat is a round

    def check_quorum(self, now: float) -> bool:
        """Was a majority heard from lately? If not, another leader may exist, and clients should find it."""
        node = self._node
        since = now - node.settings.quorum_timeout
        heard = [voter for voter in node.configuration.voters if voter == node.id or self.peers[voter].contact >= since]
        return len(heard) >= node.configuration.majority

    # Sending

    def flush(self) -> None:
        """Send each peer what it lacks: called once for all that has happened, so that proposals travel together."""
        is_round = self.reads.is_wanted
        if is_round:
            self.reads.begin_round(self._node.now)
        for node_id, peer in self.peers.items():
            if not self._send_entries(node_id, peer) and (is_round or self._commit_is_news(peer)):
                self._send_heartbeat(node_id, peer)
        self._maybe_hand_over()
        if is_round:
            self._confirm_rounds()  # a quorum of one waits for no other node

    def _send_entries(self, node_id: int, peer: Progress) -> bool:
        node, sent = self._node, False
        while peer.may_send(node.settings.inflight_max):
            prev_term = node.log.term_at(peer.next_index - 1)
            if peer.state is State.SNAPSHOT or prev_term is None:
                self._send_chunk(node_id, peer)
                return True
            if peer.next_index > node.log.last_index and peer.state is State.REPLICATE:
                return sent
            self._send_append(node_id, peer, prev_term)
            sent = True
        return sent

    def _send_append(self, node_id: int, peer: Progress, prev_term: int) -> None:
        node, settings = self._node, self._node.settings
        entries = node.log.between(
            first=peer.next_index,
            last=node.log.last_index,
            bytes_max=settings.append_bytes_max,
            entries_max=settings.append_entries_max,
        )
        message = AppendEntries(
            sender=node.id,
            term=node.term,
            prev_index=peer.next_index - 1,
            prev_term=prev_term,
            commit_index=node.commit_index,
            round=self.reads.round,
            entries=entries,
        )
        peer.commit_sent = min(node.commit_index, peer.next_index - 1 + len(entries))
        peer.sent_up_to(peer.next_index - 1 + len(entries))
        node.send_now(node_id, message)

    def _send_heartbeat(self, node_id: int, peer: Progress) -> None:
        """At the index that is known to match, so that it is never refused, whatever else is on its way."""
        node = self._node
        prev_index = peer.match_index if node.log.term_at(peer.match_index) is not None else 0
        message = AppendEntries(
            sender=node.id,
            term=node.term,
            prev_index=prev_index,
            prev_term=node.log.term_at(prev_index) or 0,
            commit_index=node.commit_index,
            round=self.reads.round,
        )
        # Also when that index is compacted away here and the message must wait for the snapshot: it is sent only once.
        peer.commit_sent = max(peer.commit_sent, min(node.commit_index, peer.match_index))
        node.send_now(node_id, message)

    def _commit_is_news(self, peer: Progress) -> bool:
        return min(self._node.commit_index, peer.match_index) > peer.commit_sent

    def _send_chunk(self, node_id: int, peer: Progress) -> None:
        node = self._node
        if peer.snapshot is None:
            assert node.snapshot is not None, "entries are compacted only behind a snapshot"
            peer.become_snapshot(node.snapshot)
        snapshot = peer.snapshot
        assert snapshot is not None
        peer.waiting = True
        message = InstallSnapshot(
            sender=node.id,
            term=node.term,
            index=snapshot.index,
            index_term=snapshot.term,
            configuration=snapshot.configuration,
            offset=peer.offset,
            total=len(snapshot.data),
            data=snapshot.data[peer.offset : peer.offset + node.settings.snapshot_chunk_bytes],
            round=self.reads.round,
        )
        node.send_now(node_id, message)

    # Answers

    def _heard(self, sender: int, round_: int) -> Progress | None:
        peer = self.peers.get(sender)
        if peer is not None:
            peer.contact = self._node.now
            if round_ > peer.round_acked:
                peer.round_acked = round_
                self._confirm_rounds()
        return peer

    def append_accepted(self, message: AppendAccepted) -> None:
        peer = self._heard(message.sender, message.round)
        if peer is None or message.match_index > self._node.log.last_index:
            return
        peer.accepted(message.match_index)
        is_joined = peer.match_index >= peer.next_index - 1
        if (peer.state is State.PROBE and is_joined) or (
            peer.snapshot is not None and peer.match_index >= peer.snapshot.index
        ):
            peer.become_replicate()
        self.maybe_commit()

    def append_rejected(self, message: AppendRejected) -> None:
        peer = self._heard(message.sender, message.round)
        if peer is None or peer.state is State.SNAPSHOT or message.prev_index <= peer.match_index:
            return
        if peer.state is State.PROBE and message.prev_index != peer.next_index - 1:
            return  # an answer to an older probe
        peer.become_probe(self._backed_up(message))

    def _backed_up(self, message: AppendRejected) -> int:
        """The next index to try: after our last entry of the conflicting term, or where that term began there."""
        shared = None
        if message.conflict_term:
            shared = self._node.log.last_index_of_term(message.conflict_term, before=message.prev_index)
        return min(message.conflict_index if shared is None else shared + 1, message.prev_index)

    def snapshot_response(self, message: SnapshotResponse) -> None:
        peer = self._heard(message.sender, message.round)
        if peer is None or peer.snapshot is None or peer.snapshot.index != message.index:
            return
        if message.installed:
            peer.accepted(message.index)
            peer.become_replicate()
            self.maybe_commit()
        elif message.offset <= len(peer.snapshot.data):
            peer.wanted_offset = message.offset
            if message.offset > peer.offset:  # only forward at once: doubled answers must not double the chunks
                peer.offset = message.offset
                peer.waiting = False

    def replicas(self) -> list[Replica]:
        node = self._node
        return [
            Replica(member=member, match_index=node.log.persisted_index, heard_at=node.now)
            if member.node_id == node.id
            else Replica(
                member=member,
                match_index=self.peers[member.node_id].match_index,
                heard_at=self.peers[member.node_id].contact,
            )
            for member in node.configuration.members
        ]

    # Reads

    def read(self, token: int) -> None:
        # Until an entry of this term is committed the commit index may lag behind what an older leader answered.
        read = ReadReady(token=token, index=max(self._node.commit_index, self.no_op_index))
        if self.has_lease():
            self.reads.answer(read)
        else:
            self.reads.wait(read)

    def has_lease(self) -> bool:
        node = self._node
        if not node.settings.lease_reads or self._has_called_election or self.reads.lease_start is None:
            return False
        return node.now < self.reads.lease_start + node.settings.lease

    @property
    def has_reads(self) -> bool:
        return bool(self.reads.ready)

    def take_reads(self) -> tuple[ReadReady, ...]:
        return self.reads.take_ready()

    def _confirm_rounds(self) -> None:
        node, own, peers = self._node, self.reads.round, self.peers
        acked = [own if voter == node.id else peers[voter].round_acked for voter in node.configuration.voters]
        self.reads.confirm(node.configuration.agreed(acked))

    # Handing over

    def transfer(self, target: int) -> None:
        self.transfer_to, self._is_asked = target, False
        self._transfer_until = self._node.now + self._node.settings.election_timeout

    def _maybe_hand_over(self) -> None:
        """The heir stands for election once it holds everything; until then it is only brought up to date."""
        node, target = self._node, self.transfer_to
        if target is None or self._is_asked:
            return
        peer = self.peers.get(target)
        if peer is not None and peer.match_index == node.log.last_index:
            # The message may arrive late, and its election ignores live leaders: no lease is safe any more.
            self._is_asked = self._has_called_election = True
            node.send_now(target, TimeoutNow(sender=node.id, term=node.term))
