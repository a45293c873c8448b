"""A quorum for scenarios that are told step by step: nothing happens by chance, and time stands until it is moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from raft_simulation.disk import Disk
from tidemark.raft import Configuration, Entry, Node, RaftSettings
from tidemark.raft.messages import Message


class Quorum:
    def __init__(self, size: int = 3, *, spares: int = 0, settings: RaftSettings | None = None) -> None:
        self.settings = settings or RaftSettings(heartbeat_interval=1.0, election_timeout=10.0)
        self.voters = tuple(range(1, size + 1))
        self.now = 0.0
        self.disks = {node_id: Disk() for node_id in range(1, size + spares + 1)}
        self.nodes: dict[int, Node] = {}
        self.applied: dict[int, list[Entry]] = {}
        self.reads: dict[int, dict[int, int]] = {}  # node -> token -> index
        self.cuts: set[tuple[int, int]] = set()
        self.refused: Callable[[Message], bool] = lambda message: False  # what the network loses
        self.sent: list[tuple[int, Message]] = []
        self._wire: list[tuple[int, Message]] = []
        for node_id in self.disks:
            self.start(node_id)

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def start(self, node_id: int) -> None:
        voters = self.voters if node_id in self.voters else ()
        self.applied[node_id], self.reads[node_id] = [], {}
        self.nodes[node_id] = Node(
            node_id,
            Configuration.of(voters),
            random=Random(node_id),
            now=self.now,
            settings=self.settings,
            saved=self.disks[node_id].load(),
        )

    def crash(self, node_id: int) -> None:
        del self.nodes[node_id]

    def restart(self, node_id: int) -> None:
        self.nodes.pop(node_id, None)
        self.start(node_id)

    # Time and messages

    def settle(self) -> None:
        """Until every node has done, and answered, everything."""
        while self._work() or self._wire:
            wire, self._wire = self._wire, []
            for to, message in wire:
                if to in self.nodes:
                    self.nodes[to].step(message, self.now)

    def _work(self) -> bool:
        worked = [self._work_of(node) for node in list(self.nodes.values())]
        return any(worked)

    def _work_of(self, node: Node) -> bool:
        effects = node.take()
        self._send(node.id, node.take_urgent())
        if not effects:
            return False
        self.disks[node.id].save(effects)
        node.saved(effects)
        self._send(node.id, effects.messages)
        self.applied[node.id] += effects.committed
        self.reads[node.id].update({read.token: read.index for read in effects.reads})
        return True

    def _send(self, source: int, messages: Iterable[tuple[int, Message]]) -> None:
        for to, message in messages:
            self.sent.append((to, message))
            if (source, to) not in self.cuts and not self.refused(message):
                self._wire.append((to, message))

    def step(self, to: int, message: Message) -> None:
        """A message from the past, or from somewhere else."""
        self.nodes[to].step(message, self.now)
        self.settle()

    def pass_time(self, seconds: float, *, only: Iterable[int] | None = None) -> None:
        """Time passes for all, or only some look at their clocks."""
        self.now += seconds
        for node_id in list(self.nodes) if only is None else only:
            self.nodes[node_id].tick(self.now)
        self.settle()

    def beat(self) -> None:
        """One heartbeat of whoever leads."""
        self.pass_time(self.settings.heartbeat_interval, only=[n.id for n in self.nodes.values() if n.is_leader])

    # What one says in a scenario

    def elect(self, node_id: int) -> Node:
        """The others have not heard from a leader for long; this one is the first to notice."""
        self.now += 2 * self.settings.election_timeout
        for _ in range(3):  # a candidate that learns of a newer term asks again in that
            if not self.nodes[node_id].is_leader:
                self.now += self.settings.election_timeout * 2
                self.nodes[node_id].tick(self.now)
                self.settle()
        return self.nodes[node_id]

    def isolate(self, node_id: int) -> None:
        for other in self.disks:
            self.cuts |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cuts.clear()

    def payloads(self, node_id: int) -> list[bytes]:
        return [entry.payload for entry in self.applied[node_id] if entry.payload and entry.kind == 0]

    def of_type(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.sent if isinstance(message, kind)]
