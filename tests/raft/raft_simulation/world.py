"""The world: hosts with a disk and a clock each, a network between them, and one queue of what happens when."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from raft_simulation.checker import STATE, Checker
from raft_simulation.disk import Disk
from raft_simulation.network import Network
from tidemark.raft import Effects, Node, RaftError, RaftSettings
from tidemark.raft.codec import decode, encode
from tidemark.raft.messages import AppendAccepted, Message, VoteResponse


class Host:
    """One machine: what survives a crash (disk, clock) and what does not (the node)."""

    def __init__(self, node_id: int, voters: tuple[int, ...]) -> None:
        self.id = node_id
        self.voters = voters
        self.disk = Disk()
        self.clock_offset = 0.0
        self.clock_rate = 1.0
        self.sync_min = self.sync_spread = 0.0
        self.paused_until = 0.0
        self.disk_hangs_until = 0.0
        self.node: Node | None = None
        self.incarnation = 0
        self.forget()

    def forget(self) -> None:
        self.node = None
        self.incarnation += 1
        self.saving: Effects | None = None
        self.timer_at = float("inf")
        self.seen_commit = 0
        self.led_term = -1
        self.applied_index = 0
        self.digest = 0
        self.proposals: dict[int, int] = {}  # index -> term of what a client waits for here
        self.reads: dict[int, int] = {}  # token -> what was committed when it was asked
        self.ready_reads: list[tuple[int, int]] = []

    def clock(self, now: float) -> float:
        return self.clock_offset + self.clock_rate * now

    def real(self, local: float) -> float:
        return (local - self.clock_offset) / self.clock_rate + 1e-6


class World:
    def __init__(
        self,
        seed: int,
        *,
        hosts: int,
        voters: Iterable[int],
        settings: RaftSettings,
        node_class: Callable[..., Node] = Node,
        through_bytes: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.settings = settings
        self.checker = Checker()
        self.network = Network(random=self.random)
        self._node_class = node_class
        self._through_bytes = through_bytes
        self._queue: list[tuple[float, int, Callable[..., None], Any]] = []
        self._count = 0
        self._payloads = 0
        self.crash_after_vote = 0.0  # how likely a node dies right after it voted
        self.crash_after_append = 0.0  # or right after it acknowledged entries
        self.crash_after_commit = 0.0  # or right after it committed something new
        self._ledger_seen = 0
        first = tuple(voters)
        self.hosts = [Host(number, first if number in first else ()) for number in range(1, hosts + 1)]

    # The queue

    def at(self, time: float, call: Callable[..., None], argument: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, call, argument))

    def run_until(self, end: float) -> None:
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= end:
            self.now, _, call, argument = pop(queue)
            call(argument)
        self.now = end

    # Hosts

    def host(self, node_id: int) -> Host:
        return self.hosts[node_id - 1]

    def alive(self) -> list[Host]:
        return [host for host in self.hosts if host.node is not None]

    def leaders(self) -> list[Host]:
        return [host for host in self.hosts if host.node is not None and host.node.is_leader]

    def start(self, host: Host) -> None:
        host.node = self._node_class(
            host.id,
            host.voters,
            random=self.random,
            now=host.clock(self.now),
            settings=self.settings,
            saved=host.disk.load(),
        )
        host.seen_commit = host.node.commit_index
        self.pump(host)

    def crash(self, host: Host) -> None:
        if host.saving is not None:
            host.disk.save_in_part(host.saving, self.random)
        host.forget()

    # One step of a node

    def pump(self, host: Host) -> None:
        """Do what the node wants done, until it wants nothing or waits for its disk."""
        node = host.node
        assert node is not None
        self.steps += 1
        for to, message in node.take_urgent():
            self.send(host, to, message)
        while host.saving is None:
            effects = node.take()
            if not effects:
                break
            if effects.entries:
                self.checker.write(node, effects.entries)
            if effects.must_save and (host.sync_min or host.disk_hangs_until > self.now):
                host.saving = effects
                delay = host.sync_min + host.sync_spread * self.random.random()
                self.at(self.now + delay, self._sync_done, (host, host.incarnation))
                if effects.restore is None:
                    self._apply(host, effects)
                break
            self._finish(host, node, effects)
            self._apply(host, effects)
            for to, message in node.take_urgent():
                self.send(host, to, message)
        if host.saving is not None and host.saving.restore is None:
            self._apply_decided(host, node)
        self.checker.after_step(host, self.hosts)
        if len(self.checker.ledger) > self._ledger_seen:
            self._tempt_old_leaders(host)
        if (due := host.real(node.deadline)) < host.timer_at:
            host.timer_at = due
            self.at(due, self._timer, (host, host.incarnation, due))

    def _tempt_old_leaders(self, host: Host) -> None:
        """Something new is committed: whoever else believes to lead is asked for it at once."""
        self._ledger_seen = len(self.checker.ledger)
        self._maybe_crash(host, self.crash_after_commit)
        for other in self.leaders():
            if other is not host:
                self.at(self.now, self.read, other)

    def _sync_done(self, argument: tuple[Host, int]) -> None:
        host, incarnation = argument
        if host.incarnation != incarnation or host.node is None or self._is_paused(host, self._sync_done, argument):
            return
        if host.disk_hangs_until > self.now:
            self.at(host.disk_hangs_until, self._sync_done, argument)
            return
        effects, host.saving = host.saving, None
        assert effects is not None
        self._finish(host, host.node, effects)
        if effects.restore is not None:
            self._apply(host, effects)
        self.pump(host)

    def _finish(self, host: Host, node: Node, effects: Effects) -> None:
        if effects.must_save:
            host.disk.save(effects)
        node.saved(effects)
        # The ledger is written before anything is applied: a node may hand out what it has just committed.
        self.checker.after_step(host, self.hosts)
        for to, message in effects.messages:
            self.send(host, to, message)

    def _apply_decided(self, host: Host, node: Node) -> None:
        """What a majority has on disk is applied while this node's own disk is busy."""
        self.checker.after_step(host, self.hosts)
        while decided := node.take_decided():
            self._apply(host, decided)

    def _apply(self, host: Host, effects: Effects) -> None:
        if effects.restore is not None:
            self.checker.restored(host, effects.restore)
        for entry in effects.committed:
            self.checker.applied(host, entry)
            if host.proposals.pop(entry.index, None) == entry.term:
                self.checker.acknowledge(entry)
        host.ready_reads += [(read.token, read.index) for read in effects.reads]
        if host.ready_reads:
            self._answer_reads(host)

    def _answer_reads(self, host: Host) -> None:
        for token, index in host.ready_reads:
            if index <= host.applied_index:
                self.checker.read_answered(index=host.applied_index, asked_at=host.reads.pop(token))
        host.ready_reads = [read for read in host.ready_reads if read[0] in host.reads]

    def _timer(self, argument: tuple[Host, int, float]) -> None:
        host, incarnation, due = argument
        if host.incarnation != incarnation or due != host.timer_at or host.node is None:
            return
        if self._is_paused(host, self._timer, argument):
            return
        host.timer_at = float("inf")
        host.node.tick(host.clock(self.now))
        self.pump(host)

    def _is_paused(self, host: Host, call: Callable[..., None], argument: Any) -> bool:
        if host.paused_until <= self.now:
            return False
        self.at(host.paused_until, call, argument)
        return True

    # Messages

    def send(self, source: Host, to: int, message: Message) -> None:
        if type(message) is VoteResponse and message.granted:
            self.checker.vote(source.id, message.term, to)
            self._maybe_crash(source, self.crash_after_vote)
        elif type(message) is AppendAccepted:
            self._maybe_crash(source, self.crash_after_append)
        if self._through_bytes:
            message = decode(encode(message))
        for delay in self.network.delays(source.id, to):
            self.at(self.now + delay, self._deliver, (self.hosts[to - 1], message))

    def _maybe_crash(self, host: Host, chance: float) -> None:
        if chance and self.random.random() < chance:
            self.at(self.now, self._crash_and_restart, (host, host.incarnation))

    def _crash_and_restart(self, argument: tuple[Host, int]) -> None:
        host, incarnation = argument
        if host.incarnation == incarnation and host.node is not None:
            self.crash(host)
            wait = self.random.choice((0.05, 0.05, 3.0))
            self.at(self.now + wait * self.random.random(), self._restart, host)

    def _restart(self, host: Host) -> None:
        if host.node is None:
            self.start(host)

    def _deliver(self, argument: tuple[Host, Message]) -> None:
        host, message = argument
        if host.node is None or (host.paused_until > self.now and self._is_paused(host, self._deliver, argument)):
            return
        host.node.step(message, host.clock(self.now))
        self.pump(host)

    # What clients and operators do

    def propose(self, host: Host) -> None:
        self._payloads += 1
        self.ask(host, partial(self._propose, host, b"%d" % self._payloads))

    def _propose(self, host: Host, payload: bytes) -> None:
        assert host.node is not None
        host.proposals[host.node.propose(payload)] = host.node.term

    def read(self, host: Host) -> None:
        self.ask(host, partial(self._read, host))

    def _read(self, host: Host) -> None:
        assert host.node is not None
        committed = self.checker.newest_acknowledged()
        host.reads[host.node.read(host.clock(self.now))] = committed

    def snapshot(self, host: Host) -> None:
        node = host.node
        if node is None or host.applied_index <= (0 if node.snapshot is None else node.snapshot.index):
            return
        if host.saving is not None or node.applied_index != host.applied_index:
            return
        data = STATE.pack(host.applied_index, host.digest) + bytes(host.applied_index % 64)
        node.compact(index=host.applied_index, data=data)
        self.pump(host)

    def ask(self, host: Host, what: Callable[[], object]) -> None:
        """A node may refuse, and then nothing has happened."""
        if host.node is None or host.paused_until > self.now:
            return
        try:
            what()
        except RaftError:
            return
        self.pump(host)
