"""What the active controller does by itself: fence brokers that are gone, let those in that are ready, keep order.

A broker is gone when its heartbeats are missing for a session, when it gives no sign of life at all for half of one, or
when its connection closes and no process listens at its address any more: a process that dies closes both at once. One
closed connection alone fences no broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.controller.sessions import Session, Sessions
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.lease import LeaseTimings
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.core.sliced_work import Job, gathered
from tidemark.broker.metadata import brokers, directories
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.elections import return_to_preferred
from tidemark.broker.metadata.features import check_broker, new_cluster
from tidemark.broker.metadata.image import BrokerImage, Image
from tidemark.broker.metadata.isr import check_sender
from tidemark.broker.metadata.min_isr import write_cluster_value
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

REBALANCED_AT_ONCE_MAX: Final = 1000
WATCH_SECONDS_MAX: Final = 1.0
LATE_SECONDS_MAX: Final = 0.3  # a check that comes later than that was held up: messages of others are still to be read


class Controller:
    def __init__(
        self,
        store: MetadataStore,
        settings: DynamicConfig,
        *,
        new_cluster_id: Callable[[], str],
        probe: Callable[[int], None],
        first_records: Callable[[], Sequence[Record]] = tuple,
        time: Callable[[], float] = monotonic,
    ) -> None:
        """`probe(broker_id)` finds out whether a broker is gone, and reports it to `fence_gone`. `first_records`:
        what a new cluster begins with, beside what every one does."""
        self._store = store
        self._settings = settings
        self._new_cluster_id = new_cluster_id
        self._probe = probe
        self._first_records = first_records
        self._time = time
        self._sessions = self._no_sessions()
        self._led_since = 0.0
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        store.watch_controller(self._controller_changed)

    def _no_sessions(self) -> Sessions:
        return Sessions(LeaseTimings(session=self._settings.static.broker_session_timeout_ms / 1000))

    # -- leading and not leading -------------------------------------------

    def _controller_changed(self, epoch: int | None) -> None:
        self.close()
        self._sessions = self._no_sessions()
        if epoch is None:
            log.info("this node is the controller no more")
            return
        log.info("this node is the controller, in epoch %d", epoch)
        now = self._led_since = self._time()
        for broker in self._store.image.brokers.values():
            self._sessions.take_over(
                broker.broker_id,
                broker_epoch=broker.broker_epoch,
                now=now,
                unfence_after=self._store.applied_index if broker.fenced else 0,
            )
        self._spawn(self._begin())
        self._spawn(self._watch_sessions())
        self._spawn(self._rebalance())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Refused):
            log.info("the controller stopped what it was doing: %s", error.message)
        else:
            log.error("the controller failed at its work", exc_info=error)

    async def _begin(self) -> None:
        if not self._store.image.cluster_id:
            cluster_id = self._new_cluster_id()
            more = self._first_records()
            await self._store.change(lambda image: [] if image.cluster_id else new_cluster(cluster_id, more))
        await self._store.change(lambda image: write_cluster_value(image, self._settings.static))
        # The controller before this one is probably dead, and others may have died with it.
        for broker_id, broker in self._store.image.brokers.items():
            if not broker.fenced and broker_id != self._store.node_id:
                self._probe(broker_id)

    # -- brokers -----------------------------------------------------------

    async def register(self, wanted: BrokerImage, *, previous_epoch: int, cluster_id: str) -> int:
        """The epoch of a broker that has started: a new one, or the same again for a request that is repeated."""
        epoch = 0

        def decide(image: Image) -> Sequence[Record] | Job[Sequence[Record]]:
            nonlocal epoch
            if cluster_id and image.cluster_id and cluster_id != image.cluster_id:
                raise Refused(
                    ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is cluster {image.cluster_id}, not {cluster_id}."
                )
            check_broker(image, wanted)
            registered = wanted if directories.may_write(image) else replace(wanted, log_dirs=())
            known = image.brokers.get(wanted.broker_id)
            if known is not None and known.incarnation_id == wanted.incarnation_id:
                epoch = known.broker_epoch  # the answer was lost: the broker has not been restarted since
                return brokers.amend(known, registered)
            epoch = self._store.next_index  # always grows, and says how far the broker must come
            return gathered(
                brokers.register(
                    image,
                    replace(registered, broker_epoch=epoch),
                    self._settings.current,
                    stopped_cleanly=known is not None and known.broker_epoch == previous_epoch,
                    has_session=self._sessions.is_alive(wanted.broker_id, self._time()),
                )
            )

        await self._store.change(decide, is_urgent=True)
        self._sessions.begin(wanted.broker_id, broker_epoch=epoch, now=self._time())
        log.info("broker %d is registered, in epoch %d", wanted.broker_id, epoch)
        return epoch

    async def heartbeat(
        self,
        broker_id: int,
        *,
        broker_epoch: int,
        metadata_offset: int,
        want_fence: bool,
        want_shut_down: bool,
        offline_log_dirs: Sequence[bytes] = (),
    ) -> tuple[bool, bool, bool]:
        """(is it caught up, is it fenced, may it go)"""
        if not self._store.is_controller:
            raise Refused(ErrorCode.NOT_CONTROLLER, "This node is not the controller.")
        check_sender(self._store.image, broker_id=broker_id, broker_epoch=broker_epoch)
        now = self._time()
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions.begin(
                broker_id, broker_epoch=broker_epoch, now=now, unfence_after=self._store.applied_index
            )
        session.heard_at, session.is_heard = now, True
        session.metadata_offset = metadata_offset
        await (
            self._store.confirm()
        )  # the answer is a lease: only a node that certainly was the controller when asked may grant it
        is_caught_up = metadata_offset >= session.unfence_after
        broker = self._store.image.brokers.get(broker_id)
        if broker is None:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"There is no broker {broker_id}.")
        if set(offline_log_dirs) & set(broker.log_dirs):
            await self._fail_directories(broker_id, offline_log_dirs)
        if want_shut_down:
            may_go = await self._may_go(broker_id, session)
            return is_caught_up, self._is_fenced(broker_id), may_go
        if want_fence and not broker.fenced:
            await self._fence(broker_id, "it asked for it")
        elif broker.fenced and is_caught_up and not want_fence:
            await self._unfence(broker_id)
        return is_caught_up, self._is_fenced(broker_id), False

    def _is_fenced(self, broker_id: int) -> bool:
        """Or about to be."""
        found = (image.brokers.get(broker_id) for image in (self._store.image, self._store.newest))
        return any(broker is None or broker.fenced for broker in found)

    async def _may_go(self, broker_id: int, session: Session) -> bool:
        """Controlled shutdown: not before others lead, and all of them know."""
        if session.shutdown_offset is None:
            await self._change(brokers.begin_shutdown, broker_id)
            session.shutdown_offset = self._store.applied_index
        image = self._store.image
        if brokers.leads_anything(image, broker_id):
            return False
        active = [each.broker_id for each in image.brokers.values() if each.is_active]
        lowest = self._sessions.lowest_offset(active)
        return lowest is None or lowest >= session.shutdown_offset

    async def _fail_directories(self, broker_id: int, failed: Sequence[bytes]) -> None:
        log.warning("broker %d: a log directory has failed; others lead what was in it", broker_id)
        config = self._settings.current
        await self._store.change(
            lambda image: gathered(directories.fail(image, broker_id, failed, config)), is_urgent=True
        )

    async def _unfence(self, broker_id: int) -> None:
        await self._change(brokers.unfence, broker_id)
        log.info("broker %d is unfenced", broker_id)

    async def _change(self, how: Callable[[Image, int, BrokerConfig], Iterable[Record]], broker_id: int) -> None:
        """Of a broker's state, with all its partitions. It does not wait for what clients have asked for."""
        config = self._settings.current
        await self._store.change(lambda image: gathered(how(image, broker_id, config)), is_urgent=True)

    async def _fence(self, broker_id: int, reason: str, *, broker_epoch: int | None = None) -> None:
        broker = self._store.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_epoch not in (None, broker.broker_epoch):
            return
        epoch = broker.broker_epoch
        log.warning("broker %d is fenced: %s", broker_id, reason)

        def fence(image: Image, broker_id: int, config: BrokerConfig) -> Iterable[Record]:
            now = image.brokers.get(broker_id)
            if now is None or now.broker_epoch != epoch:
                return ()  # it has registered anew in the meantime
            return brokers.fence(image, broker_id, config)

        await self._change(fence, broker_id)
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == epoch:
            # Before it may serve again, it must know which brokers lead in its place.
            session.unfence_after = max(session.unfence_after, self._store.applied_index)

    # -- brokers that are gone -------------------------------------------------------

    async def _watch_sessions(self) -> None:
        while True:
            wait = self._until_next_expiry()
            due = self._time() + wait
            await asyncio.sleep(wait)
            if self._time() > due + LATE_SECONDS_MAX:
                await asyncio.sleep(LATE_SECONDS_MAX)
            for broker_id in list(self._sessions.expired(self._unfenced(), self._time(), self._words())):
                await self._try(self._fence(broker_id, "it has not been heard from for too long"))

    def _unfenced(self) -> list[int]:
        return [each.broker_id for each in self._store.image.brokers.values() if not each.fenced]

    def _words(self) -> dict[int, float]:
        """When each member of the quorum last said something to this leader."""
        node = self._store.driver.node
        if not node.is_leader:
            return {}
        return {each.member.node_id: each.heard_at for each in node.replicas() if each.heard_at > self._led_since}

    def _until_next_expiry(self) -> float:
        expiry = self._sessions.next_expiry(self._unfenced(), self._words())
        return WATCH_SECONDS_MAX if expiry is None else min(max(expiry - self._time(), 0.01), WATCH_SECONDS_MAX)

    async def fence_gone(self, broker: BrokerImage, reason: str) -> None:
        """A probe found that the broker's process has ended: no need to wait for its session to run out."""
        if self._store.is_controller:
            await self._try(self._fence(broker.broker_id, reason, broker_epoch=broker.broker_epoch))

    # -- keeping order -----------------------------------------------------

    async def _rebalance(self) -> None:
        while True:
            await asyncio.sleep(self._settings.current.leader_imbalance_check_interval_seconds)
            if self._settings.current.auto_leader_rebalance_enable:
                await self._try(self._store.change(self._return_to_preferred))

    def _return_to_preferred(self, image: Image) -> Sequence[Record]:
        return return_to_preferred(image, self._settings.current, partitions_max=REBALANCED_AT_ONCE_MAX)

    async def _try(self, work: Coroutine[Any, Any, object]) -> None:
        """What is refused now is tried again the next time round."""
        try:
            await work
        except Refused as refusal:
            log.info("the controller could not do what it wanted: %s", refusal.message)
