"""Runs a node: gives it messages and time, saves, sends and applies what it wants. All decisions are the node's.

Disk, transport and state machine are injected. Syncs run off the loop; meanwhile messages and timers go on, and what
they bring is saved with the next sync, so that one sync serves all that wait. What the quorum has decided is applied
meanwhile, too: a node whose disk hangs would otherwise go on by metadata that is no longer true.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Final, Protocol

from tidemark.raft.codec import decode, encode
from tidemark.raft.configuration import NO_DIRECTORY, Configuration
from tidemark.raft.dropped import DroppedMessages
from tidemark.raft.effects import Addressed, Effects
from tidemark.raft.entry import Entry, Kind, Saved, Snapshot
from tidemark.raft.errors import LeadershipLost, MessageCorrupt
from tidemark.raft.node import DEFAULTS, Leadership, Node
from tidemark.raft.settings import RaftSettings

log = logging.getLogger(__name__)

SNAPSHOT_AFTER_BYTES: Final = 4 << 20
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)  # clients have opened as many connections as there can be, say
SAVE_AGAIN_SECONDS: Final = 1.0


class _NotSaved(Exception):
    """The disk was full until the driver was stopped."""


class Storage(Protocol):
    def load(self) -> Saved: ...
    def save(self, effects: Effects) -> None: ...


class Transport(Protocol):
    def send(self, to: int, data: bytes) -> None:
        """Never waits; what cannot be sent is lost."""


class StateMachine(Protocol):
    async def prepare(self, entries: Sequence[Entry]) -> None:
        """Called before `apply`: what takes long is done here, with pauses."""

    def apply(self, entries: Sequence[Entry]) -> None: ...
    async def restore(self, snapshot: Snapshot) -> None:
        """Nothing is applied meanwhile."""

    async def snapshot(self) -> bytes:
        """The state after the last entry applied. None is applied meanwhile."""

    def lead(self, leadership: Leadership | None) -> None:
        """Another node, or none, leads from now on."""


RunBlocking = Callable[[Callable[[Effects], None], Effects], Awaitable[None]]


async def run_in_thread(call: Callable[[Effects], None], effects: Effects) -> None:
    await asyncio.get_running_loop().run_in_executor(None, call, effects)


class Driver:
    """`run` runs until `stop`; it raises what the disk or the state machine raises, and then the node is down."""

    def __init__(
        self,
        node_id: int,
        voters: Iterable[int] | Configuration,
        *,
        storage: Storage,
        transport: Transport,
        machine: StateMachine,
        random: Random,
        settings: RaftSettings = DEFAULTS,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
        run_blocking: RunBlocking = run_in_thread,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._storage = storage
        self._transport = transport
        self._machine = machine
        self._run_blocking = run_blocking
        self._snapshot_after_bytes = snapshot_after_bytes
        self._save_timeout = settings.save_timeout
        self._wake = asyncio.Event()
        self._writing_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._dropped = DroppedMessages(log, clock=self._loop.time)
        self._applied_index = 0
        self._unsnapshotted_bytes = 0
        self._leadership: Leadership | None = None
        self._proposals: dict[int, tuple[int, asyncio.Future[int]]] = {}  # index -> term, what waits
        self._reads: dict[int, asyncio.Future[int]] = {}  # token -> what waits
        self._ready_reads: list[tuple[int, asyncio.Future[int]]] = []  # index to be applied first, what waits
        self.node = Node(node_id, voters, random=random, now=self._loop.time(), settings=settings, saved=storage.load())

    # Asked by others

    def get_leader(self) -> Leadership | None:
        return self.node.get_leader()

    async def propose(self, payload: bytes, *, epoch: int | None = None) -> int:
        """The entry's index, once it is committed and applied here. `LeadershipLost`: it may be committed or not."""
        return await self.submit(payload, epoch=epoch)

    def submit(self, payload: bytes, *, epoch: int | None = None) -> asyncio.Future[int]:
        """As `propose`, for a caller that does not wait before it proposes more: the order is that of the calls."""
        return self._decided(self.node.propose(payload, epoch=epoch))

    async def add_learner(self, node_id: int, *, detail: bytes = b"", directory_id: bytes = NO_DIRECTORY) -> int:
        return await self._decided(self.node.add_learner(node_id, detail=detail, directory_id=directory_id))

    async def add_voter(self, node_id: int) -> int:
        return await self._decided(self.node.add_voter(node_id))

    async def update_member(self, node_id: int, *, detail: bytes, directory_id: bytes | None = None) -> int:
        return await self._decided(self.node.update_member(node_id, detail=detail, directory_id=directory_id))

    async def remove_member(self, node_id: int) -> int:
        return await self._decided(self.node.remove_member(node_id))

    async def read(self) -> int:
        """Returns when the state machine here holds everything that was committed before the call."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._reads[self.node.read(self._loop.time())] = future
        self._stepped()
        return await future

    async def applied(self, index: int) -> None:
        """Returns when the state machine here has gone past this entry, which may be decided by others."""
        if self._applied_index < index:
            future: asyncio.Future[int] = self._loop.create_future()
            self._ready_reads.append((index, future))
            await future

    @property
    def applied_index(self) -> int:
        return self._applied_index

    @property
    def next_index(self) -> int:
        """Of the entry that is proposed next: good until the caller awaits something."""
        return self.node.log.last_index + 1

    @property
    def stalled_seconds(self) -> float:
        """For how long the disk has said nothing to a save. Meanwhile this node has no vote in what others decide."""
        return 0.0 if self._writing_since is None else self._loop.time() - self._writing_since

    def transfer_leadership(self, target: int) -> None:
        self.node.transfer_leadership(target, self._loop.time())
        self._stepped()

    def _decided(self, index: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self._proposals[index] = (self.node.term, future)
        self._stepped()
        return future

    # The transport calls these

    def receive(self, data: bytes, *, sender: int | None = None) -> None:
        """`sender`: the node that the transport says this is from."""
        if self._is_stopping:
            return
        try:
            message = decode(data)
        except MessageCorrupt as error:
            self._dropped.note(str(error))
            return
        if sender is not None and sender != message.sender:
            self._dropped.note(f"node {sender} passed on a message of node {message.sender}")
            return
        if (reason := self.node.why_refused(message)) is not None:
            self._dropped.note(f"{type(message).__name__} from node {message.sender}: {reason}")
            return
        self.node.step(message, self._loop.time())
        self._stepped()

    def disconnected(self, node_id: int) -> None:
        """The connection to a node was closed by its side: if it led, it is probably dead."""
        if not self._is_stopping:
            self.node.lose_leader(node_id, self._loop.time())
            self._stepped()

    # The loop

    async def run(self) -> None:
        try:
            while not self._is_stopping:
                self._stepped()
                self._wake.clear()
                effects = self.node.take()
                if effects:
                    await self._carry_out(effects)
                else:
                    await self._wake.wait()
        except _NotSaved as error:  # nothing of it was promised
            log.warning("stopping without the last of the quorum's log, which cannot be written: %s", error)
        finally:
            self._close()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    async def _carry_out(self, effects: Effects) -> None:
        if effects.must_save and effects.restore is None:
            await self._save_and_apply(effects)
        elif effects.must_save:
            await self._save(effects)
        self.node.saved(effects)
        self._send(effects.messages)
        if not effects.must_save or effects.restore is not None:
            await self._apply(effects)
        self._follow_leadership()
        await self._maybe_snapshot()

    async def _save_and_apply(self, effects: Effects) -> None:
        """Entries are committed by what a majority has on disk, so that they need not be on this one."""
        saving = self._loop.create_task(self._save(effects))
        saving.add_done_callback(lambda _: self._wake.set())
        try:
            await self._apply(effects)
            while not saving.done():
                self._wake.clear()
                if decided := self.node.take_decided():
                    await self._apply(decided)
                else:
                    await self._wake.wait()
            await saving
        finally:
            saving.cancel()

    async def _save(self, effects: Effects) -> None:
        """A full disk is waited out: nothing has been promised, and what was written of it is cut off again. So is a
        process that has no descriptor left."""
        while True:
            self._writing_since = self._loop.time()
            try:
                await self._run_blocking(self._storage.save, effects)
                return
            except OSError as error:
                if error.errno not in (*DISK_FULL, *NO_DESCRIPTORS):
                    raise
                if self._is_stopping:
                    raise _NotSaved(str(error)) from error
                log.error("the quorum's log cannot be written, and waits: %s", error)
            finally:
                self._writing_since = None
            await asyncio.sleep(SAVE_AGAIN_SECONDS)

    def _stepped(self) -> None:
        """The node's state has changed: send what may leave at once, set the clock, wake the loop."""
        self._send(self.node.take_urgent())
        self._follow_leadership()
        if self._timer is None or self._timer.cancelled() or self._timer.when() > self.node.deadline:
            self._arm()
        self._wake.set()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._is_stopping else self._loop.call_at(self.node.deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._is_stopping:
            self.node.tick(self._loop.time())
            self._stepped()

    def _send(self, messages: Iterable[Addressed]) -> None:
        for to, message in messages:
            self._transport.send(to, encode(message))

    # The state machine

    async def _apply(self, effects: Effects) -> None:
        if effects.committed and effects.restore is None:
            await self._machine.prepare(_data(effects.committed))
        if effects.restore is not None:
            await self._machine.restore(effects.restore)
            self._applied_index = effects.restore.index
            self._unsnapshotted_bytes = 0
        if effects.committed:
            self._apply_entries(effects.committed)
        for read in effects.reads:
            if (future := self._reads.pop(read.token, None)) is not None:
                self._ready_reads.append((read.index, future))
        if self._ready_reads:
            self._answer_reads()

    def _apply_entries(self, entries: Sequence[Entry]) -> None:
        self._unsnapshotted_bytes += sum(len(entry.payload) for entry in entries)
        if data := _data(entries):
            self._machine.apply(data)
        self._applied_index = entries[-1].index
        for entry in entries:
            self._resolve_proposal(entry)

    def _resolve_proposal(self, entry: Entry) -> None:
        term, future = self._proposals.pop(entry.index, (0, None))
        if future is None or future.done():
            return
        if term == entry.term:
            future.set_result(entry.index)
        else:
            future.set_exception(LeadershipLost(f"another leader's entry took the place of entry {entry.index}"))

    def _answer_reads(self) -> None:
        for index, future in self._ready_reads:
            if index <= self._applied_index and not future.done():
                future.set_result(index)
        self._ready_reads = [(index, future) for index, future in self._ready_reads if not future.done()]

    def _follow_leadership(self) -> None:
        leadership = self.node.get_leader()
        if leadership == self._leadership:
            return
        had, self._leadership = self._leadership, leadership
        if self.node.is_disk_stalled and had is not None and had.leader_id == self.node.id:
            log.error("the disk has not written the quorum's log for %g s: another node must lead", self._save_timeout)
        if had is not None and had.leader_id == self.node.id:
            self._fail_waiters(LeadershipLost(f"node {self.node.id} no longer leads epoch {had.epoch}"))
        self._machine.lead(leadership)

    async def _maybe_snapshot(self) -> None:
        node = self.node
        if self._unsnapshotted_bytes >= self._snapshot_after_bytes and self._applied_index == node.applied_index:
            data = await self._machine.snapshot()
            if self._applied_index == node.applied_index:  # or a snapshot of the leader has come meanwhile
                node.compact(index=self._applied_index, data=data)
                self._unsnapshotted_bytes = 0

    def _fail_waiters(self, error: LeadershipLost) -> None:
        waiting: list[asyncio.Future[int]] = [future for _, future in self._proposals.values()]
        waiting += [*self._reads.values(), *(future for _, future in self._ready_reads)]
        self._proposals.clear()
        self._reads.clear()
        self._ready_reads.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def _close(self) -> None:
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiters(LeadershipLost(f"node {self.node.id} has stopped"))


def _data(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.kind is Kind.DATA]
