"""The metadata on this node: a replica of the quorum's log, folded into an image; and on the controller, its changes.

The controller (the quorum's leader) decides on the newest image, which includes what it has proposed and the quorum has
not committed yet, so that decisions need not wait for each other; all other code, and every answer, sees only what is
committed. A single node is a quorum of one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job, finished, finished_apart
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record, decode_records, encode_records, encode_records_in_slices
from tidemark.environment import new_random
from tidemark.protocol.errors import ErrorCode
from tidemark.raft import Driver, FileStorage, LeadershipLost, Overloaded, RaftError, RaftSettings

if TYPE_CHECKING:
    from tidemark.raft import Configuration, Entry, Leadership, Snapshot, Transport

log = logging.getLogger(__name__)

CHANGE_SECONDS_MAX: Final = 30.0  # after it a change is answered with a time-out; it may still happen
SNAPSHOT_AFTER_BYTES: Final = 4 << 20
AT_ONCE_MAX: Final = 500  # records of a change; more are encoded and applied in slices
AT_ONCE_BYTES_MAX: Final = 32 << 10  # likewise, of a change that another node decided on
# A generator yields where others may have their turn: for decisions about thousands of things.
Decide = Callable[[Image], Sequence[Record] | Job[Sequence[Record]]]
Watch = Callable[[Image, Image], None]
WatchController = Callable[[int | None], None]

T = TypeVar("T")


class Finish(Protocol):
    """Does a job in slices: `finished` or `finished_apart`."""

    async def __call__(self, job: Job[T], /) -> T: ...


class MetadataStore:
    def __init__(
        self,
        directory: Path,
        *,
        node_id: int = 0,
        voters: Iterable[int] | Configuration | None = None,
        transport: Transport | None = None,
        settings: RaftSettings | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`voters` of a new quorum: this node alone, if not given. `failed` is called when this node must stop."""
        self.node_id = node_id
        self.image = Image()
        self._storage = FileStorage(directory)
        self.driver = Driver(
            node_id,
            (node_id,) if voters is None else voters,
            storage=self._storage,
            transport=transport or _NoPeers(),
            machine=self,
            random=new_random(),
            settings=settings or RaftSettings(),
            snapshot_after_bytes=SNAPSHOT_AFTER_BYTES,
        )
        self.is_new = self.driver.node.log.last_index == 0
        self._failed = failed
        self._watchers: list[Watch] = []
        self._controller_watchers: list[WatchController] = []
        self._leader_watchers: list[Callable[[], object]] = []
        self._running: asyncio.Task[None] | None = None
        self._activating: asyncio.Task[None] | None = None
        self._active = asyncio.Event()
        self._epoch = 0  # of this node's own leadership, while it is active
        self._deciding = asyncio.Lock()  # a long decision is made in slices, and the next one is based on it
        self._newest = self.image  # on the active controller: with what is proposed and not committed
        self._proposed: deque[tuple[int, Image]] = deque()  # (index of the entry, the image after it)
        self._prepared: tuple[int, Image] | None = None  # likewise, of what is about to be applied

    # -- the start and the end ---------------------------------------------

    async def start(self) -> None:
        """Take part in the quorum. A quorum of one is ready on return; another may have no leader yet."""
        self._running = asyncio.create_task(self.driver.run())
        self._running.add_done_callback(self._stopped)
        if self.driver.node.configuration.voters == (self.node_id,):
            await self._active.wait()

    async def close(self) -> None:
        self.driver.stop()
        if self._activating is not None:
            self._activating.cancel()
        if self._running is not None:
            await asyncio.wait([self._running])
        self._storage.close()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.critical("the metadata log failed, and this node with it", exc_info=error)
        self._active.set()  # those that wait for it find out with their next step
        if self._failed is not None:
            self._failed(error)

    # -- leadership --------------------------------------------------------

    @property
    def leader_id(self) -> int | None:
        """The controller, as far as this node knows."""
        leadership = self.driver.get_leader()
        return None if leadership is None else leadership.leader_id

    @property
    def is_controller(self) -> bool:
        """Whether this node leads and has applied everything that leaders before it committed."""
        return self._epoch != 0

    def watch_controller(self, watcher: WatchController) -> None:
        """`watcher(epoch)` is called when this node becomes the active controller, and `watcher(None)` when it ends."""
        self._controller_watchers.append(watcher)

    def watch_leader(self, watcher: Callable[[], object]) -> None:
        """`watcher()` is called when another node, or none, leads the quorum as far as this node knows."""
        self._leader_watchers.append(watcher)

    # -- following ---------------------------------------------------------

    def watch(self, watcher: Watch) -> None:
        """`watcher(old, new)` is called after every change, in order, on the event loop."""
        self._watchers.append(watcher)

    @property
    def applied_index(self) -> int:
        return self.driver.applied_index

    async def applied(self, index: int) -> None:
        """Returns when the image here includes this entry."""
        await self.driver.applied(index)

    # -- changing ----------------------------------------------------------

    @property
    def newest(self) -> Image:
        """On the controller: with what it has decided and the quorum has not committed yet."""
        return self._newest if self._epoch else self.image

    async def confirm(self) -> None:
        """Returns once it is certain that no other node was the controller at the time of this call; else refused."""
        if not self._epoch:
            raise Refused(ErrorCode.NOT_CONTROLLER, "This node is not the controller.")
        try:
            await self.driver.read()
        except (LeadershipLost, RaftError) as error:
            raise Refused(ErrorCode.NOT_CONTROLLER, f"The controller has changed: {error}.") from error

    async def change(self, decide: Decide, *, is_urgent: bool = False) -> Image:
        """Commit what `decide` makes of the newest image; it may raise to refuse, and then nothing happens. What is
        urgent does not wait until long work for clients is done."""
        if not self._epoch:
            raise Refused(ErrorCode.NOT_CONTROLLER, "This node is not the controller.")
        try:
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                await self._decide(decide, finished_apart if is_urgent else finished)
        except TimeoutError:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "The quorum did not commit the change in time.") from None
        except Overloaded as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"The quorum has too much to do: {error}.") from error
        except (LeadershipLost, RaftError) as error:
            raise Refused(ErrorCode.NOT_CONTROLLER, f"The controller has changed: {error}.") from error
        return self.image

    async def _decide(self, decide: Decide, finish: Finish) -> None:
        refusal: Refused | None = None
        committed: asyncio.Future[int] | None = None
        async with self._deciding:
            epoch = self._epoch
            try:
                records = decide(self._newest)
                if isinstance(records, Generator):
                    records = await finish(records)
                committed = await self._propose(records, epoch, finish) if records else None
            except Refused as error:
                refusal = error
        if committed is None:
            await self._await_decided()
        else:
            await committed
        if refusal is not None:
            raise refusal

    async def _propose(self, records: Sequence[Record], epoch: int, finish: Finish) -> asyncio.Future[int]:
        if len(records) <= AT_ONCE_MAX:
            payload, newest = encode_records(records), self._newest.apply(records)
        else:
            payload = await finish(encode_records_in_slices(records))
            newest = await finish(self._newest.apply_in_slices(records))
        if not epoch or epoch != self._epoch:
            raise Refused(ErrorCode.NOT_CONTROLLER, "The controller has changed.")
        index = self.driver.next_index
        committed = self.driver.submit(payload, epoch=epoch)
        self._newest = newest
        self._proposed.append((index, newest))
        return committed

    @property
    def next_index(self) -> int:
        """Of the entry that a decision under way will become."""
        return self.driver.next_index

    async def _await_decided(self) -> None:
        """What the decision was based on is committed, or (by raising) is not."""
        if self._proposed:
            await self.driver.applied(self._proposed[-1][0])

    # -- the driver calls these --------------------------------------------

    async def prepare(self, entries: Sequence[Entry]) -> None:
        """On nodes that did not decide it, a change of thousands of partitions is folded into the image in slices."""
        if self._proposed or sum(len(entry.payload) for entry in entries) <= AT_ONCE_BYTES_MAX:
            return
        image = self.image
        for entry in entries:
            image = await finished_apart(image.apply_in_slices(decode_records(entry.payload)))
        self._prepared = entries[-1].index, image

    def apply(self, entries: Sequence[Entry]) -> None:
        old, self.image = self.image, self._folded(entries)
        self._show(old, self.image)

    def _folded(self, entries: Sequence[Entry]) -> Image:
        image = self.image
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == entries[-1].index:
            return prepared[1]
        for entry in entries:
            if self._proposed and self._proposed[0][0] == entry.index:
                image = self._proposed.popleft()[1]
            else:
                image = image.apply(decode_records(entry.payload))
        return image

    async def restore(self, snapshot: Snapshot) -> None:
        """Of a node that starts, or that was away for so long that the quorum has no log for it any more."""
        image = await finished_apart(Image().apply_in_slices(decode_records(snapshot.data)))
        old, self.image = self.image, image
        self._show(old, self.image)

    async def snapshot(self) -> bytes:
        return await finished_apart(encode_records_in_slices(self.image.records()))

    def lead(self, leadership: Leadership | None) -> None:
        if self._epoch:
            self._epoch = 0
            self._notify_controller_watchers(None)
        self._proposed.clear()
        if self._activating is not None:
            self._activating.cancel()
            self._activating = None
        if leadership is not None and leadership.leader_id == self.node_id:
            self._activating = asyncio.create_task(self._activate(leadership.epoch))
        for watcher in self._leader_watchers:
            watcher()

    async def _activate(self, epoch: int) -> None:
        """A new leader decides nothing before it knows all that was decided."""
        try:
            await self.driver.read()
        except (LeadershipLost, RaftError):
            return
        self._activating = None
        self._newest = self.image
        self._epoch = epoch
        self._active.set()
        self._notify_controller_watchers(epoch)

    def _notify_controller_watchers(self, epoch: int | None) -> None:
        for watcher in self._controller_watchers:
            try:
                watcher(epoch)
            except Exception:
                log.exception("a service failed to follow a change of the controller")

    def _show(self, old: Image, new: Image) -> None:
        for watcher in self._watchers:
            try:
                watcher(old, new)
            except Exception:  # one service's trouble must not hide a committed change from the others
                log.exception("a service failed to follow a metadata change")


class _NoPeers:
    def send(self, to: int, data: bytes) -> None:
        """A quorum of one has no other node to write to."""
