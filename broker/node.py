"""One broker: opens its data, wires the services, serves, and comes to an orderly end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.cluster.kafka_adoption import adopt_topics
from tidemark.broker.cluster.topic_creation import TopicCreation
from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.coordinators import Coordinators
from tidemark.broker.core.api_table import SERVED
from tidemark.broker.core.registry import find_route
from tidemark.broker.handlers.fetch.sessions import FetchSessions
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.producer_ids import ProducerIds, reserve
from tidemark.broker.metadata.records import ClusterRecord, Endpoint, Record, RegisterBrokerRecord
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replicas import Replicas
from tidemark.broker.server.dispatch import Dispatcher
from tidemark.broker.server.server import Server
from tidemark.storage import LogDirectory

if TYPE_CHECKING:
    from tidemark.broker.cluster_runtime import ClusterRuntime

log = logging.getLogger(__name__)

METADATA_DIRECTORY: Final = "tidemark-metadata"
INTERVAL_MS_MIN: Final = 100  # an interval of 0 must not take the whole processor
TICK_MS: Final = 1000  # how punctual flush.ms and file.delete.delay.ms are
WARM_UP_DELAY: Final = 0.5  # seconds; requests come first
WARM_UP_PAUSE: Final = 0.02
HOUSEKEEPING_CHUNK: Final = 50  # partitions between two breaths of the event loop


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Node:
    """After `start()`, `address` says where clients connect."""

    def __init__(self, config: BrokerConfig, *, failed: Callable[[BaseException], None] | None = None) -> None:
        """`failed` is told when the node cannot go on, after the reason is logged."""
        self.config = config
        self._failed = failed or (lambda _error: None)
        self.settings = DynamicConfig(config)
        self.address = ("", 0)
        self._opened = AsyncExitStack()

    async def start(self) -> None:
        """Returns when clients are served. After a failure nothing is held open."""
        async with AsyncExitStack() as opened:
            await self._start(opened)
            self._opened = opened.pop_all()

    async def stop(self) -> None:
        """Finish what was accepted, then put everything safely on disk: the start, backwards."""
        await self._opened.aclose()

    async def _start(self, opened: AsyncExitStack) -> None:
        config = self.config
        self._directories = self._open_directories(opened)
        self._clustered = self._among_others()
        if self._clustered is None:
            self._store = MetadataStore(self._metadata_path(), node_id=config.node_id, failed=self._failed)
        else:
            self._store = self._clustered.store
        opened.push_async_callback(self._store.close if self._clustered is None else self._clustered.close)
        self._replicas = Replicas(
            node_id=config.node_id, config=config, directories=self._directories, now_ms=wall_clock_ms
        )
        opened.push_async_callback(self._close_replicas)
        opened.push_async_callback(self._replicas.stop_replication)
        self._creation = TopicCreation(self._store, self.settings)
        self._coordinators = Coordinators(
            node_id=config.node_id, settings=self.settings, replicas=self._replicas.table, creation=self._creation
        )
        self._replicas.roles.opening.opened_later = self._coordinators.opened
        services = self._services()
        dispatcher = Dispatcher(services)
        self._server = Server(config, dispatcher)
        opened.push_async_callback(self._server.close)
        opened.push_async_callback(dispatcher.finish_tasks)
        for listener in config.parsed_listeners:
            await self._server.listen(listener)
        self.address = next(iter(self._server.endpoints.values()))
        if self._clustered is None:
            await self._store.start()
            await self._load_state()
            await self._register()
        else:
            await self._clustered.join(self._server, services)
            self._identify_all(self._store.image.cluster_id)
            opening = self._replicas.roles.opening.begin_loading_in_background()
            await self._load_state()
            await opening.finished()
            self._replicas.start_replication(self._clustered.peers)
        opened.callback(self._replicas.end_waits)
        opened.callback(self._coordinators.close)
        opened.callback(self._stop_accepting)
        for wait_ms, work in self._jobs():
            task = asyncio.create_task(_repeat(wait_ms, work))
            opened.push_async_callback(_cancel, task)
        await self._server.serve()
        if self._clustered is not None:
            opened.push_async_callback(self._clustered.leave)
            self._clustered.membership.start()
            await self._clustered.membership.admitted()

    async def warm_up(self) -> None:
        """Load, a little at a time, what the start left to the first request that needs it."""
        await asyncio.sleep(WARM_UP_DELAY)
        for key in SERVED:
            find_route(key)
            await asyncio.sleep(WARM_UP_PAUSE)
        _ = self._coordinators.groups
        await asyncio.sleep(WARM_UP_PAUSE)
        _ = self._coordinators.transactions

    # -- starting ----------------------------------------------------------

    def _among_others(self) -> ClusterRuntime | None:
        if self.config.parsed_controller_listener is None:
            return None
        from tidemark.broker.cluster_runtime import ClusterRuntime  # a node of its own does without it

        return ClusterRuntime(
            self.config,
            self._metadata_path(),
            settings=self.settings,
            cluster_id=self._known_cluster_id(),
            new_cluster_id=_random_id,
            endpoints=self._endpoints,
            renew_lease=lambda until: setattr(self._replicas.table, "lease_until", until),
            failed=self._failed,
        )

    def _services(self) -> dict[str, Callable[[], Any]]:
        """What a handler may name as an argument."""
        config = self.config
        slots_max = config.max_incremental_fetch_session_cache_slots
        made: dict[str, Any] = {
            "cluster": ClusterView(self._store, node_id=config.node_id),
            "creation": self._creation,
            "fetch_sessions": FetchSessions(slots_max=slots_max, time=time.monotonic),
            "follower_sessions": self._replicas.follower_sessions,
            "housekeeping": self._replicas.housekeeping,
            "producer_ids": ProducerIds(self._allocate_producer_ids()),
            "quorum": None,
            "replicas": self._replicas.table,
            "settings": self.settings,
            "store": self._store,
        }
        services: dict[str, Callable[[], Any]] = {
            **{name: partial(made.__getitem__, name) for name in made},
            "groups": lambda: self._coordinators.groups,
            "transactions": lambda: self._coordinators.transactions,
        }
        clustered = self._clustered
        if clustered is None:
            return services
        made["cluster"].suspects = clustered.suspects
        made["cluster"].is_leased = lambda: self._replicas.table.is_leased
        made["cluster"].is_isolated = lambda: clustered.quorum.is_isolated
        services = clustered.services(services)
        self._creation.forwarding = clustered.forwarding
        return services

    def _allocate_producer_ids(self) -> Callable[[], Awaitable[int]]:
        return partial(reserve, self._store) if self._clustered is None else self._clustered.allocate_producer_ids

    def _open_directories(self, opened: AsyncExitStack) -> list[LogDirectory]:
        directories = []
        for path in self.config.log_dirs:
            directory = LogDirectory.open(path, now_ms=wall_clock_ms)
            opened.callback(directory.close)
            directories.append(directory)
        return directories

    def _metadata_path(self) -> Path:
        return Path(self.config.metadata_log_dir or self.config.log_dirs[0]) / METADATA_DIRECTORY

    def _known_cluster_id(self) -> str:
        """As the settings or the log directories say; empty if nobody has said yet."""
        known = {each.meta_properties().get("cluster.id", "") for each in self._directories}
        known.add(self.config.cluster_id or "")
        known.discard("")
        if len(known) > 1:
            raise RuntimeError(f"the log directories belong to different clusters: {', '.join(sorted(known))}")
        return known.pop() if known else ""

    def _identify_all(self, cluster_id: str) -> None:
        known = self._known_cluster_id()
        if known and known != cluster_id:
            raise RuntimeError(f"the data is of cluster {known}, but this is cluster {cluster_id}")
        for directory in self._directories:
            self._identify(directory, directory.meta_properties(), cluster_id)

    def _identify(self, directory: LogDirectory, written: dict[str, str], cluster_id: str) -> None:
        node_id = str(self.config.node_id)
        owner = written.get("node.id", node_id)
        if owner != node_id:
            raise RuntimeError(f"{directory.path} belongs to node {owner}, but this is node {node_id} (node.id)")
        wanted = {
            "cluster.id": cluster_id,
            "node.id": node_id,
            "directory.id": written.get("directory.id", _random_id()),
        }
        if not wanted.items() <= written.items():
            directory.write_meta_properties(wanted)

    async def _load_state(self) -> None:
        self.settings.watch(self._replicas.roles.reconfigure_all)
        self._store.watch(self.settings.follow)
        self._store.watch(self._replicas.roles.follow)
        self._store.watch(self._coordinators.follow)
        self.settings.watch(self._coordinators.reconfigure)
        empty = Image()
        self.settings.follow(empty, self._store.image)
        self._replicas.roles.follow(empty, self._store.image)
        self._coordinators.follow(empty, self._store.image)

    async def _register(self) -> None:
        """On a node that is a cluster of its own: what it needs nobody's leave for."""
        self._identify_all(self._store.image.cluster_id or self._known_cluster_id() or _random_id())
        if self._store.is_new:
            await adopt_topics(self._store, self._directories, node_id=self.config.node_id)
        await self._store.change(self._registration)

    def _registration(self, image: Image) -> list[Record]:
        node_id = self.config.node_id
        registration = RegisterBrokerRecord(
            broker_id=node_id,
            broker_epoch=self._store.next_index,
            rack=self.config.broker_rack,
            endpoints=self._endpoints(),
        )
        if image.cluster_id:
            return [registration]
        return [ClusterRecord(cluster_id=self._known_cluster_id()), registration]

    def _endpoints(self) -> list[Endpoint]:
        return [self._endpoint(listener) for listener in self.config.parsed_advertised_listeners]

    def _endpoint(self, listener: Listener) -> Endpoint:
        port = listener.port or self._server.endpoints[listener.name][1]
        return Endpoint(name=listener.name, host=listener.host, port=port, security_protocol=listener.security_protocol)

    # -- stopping ----------------------------------------------------------

    def _stop_accepting(self) -> None:
        """The cluster's own listener goes last: others may need this node's vote until then."""
        listener = self.config.parsed_controller_listener
        self._server.stop_accepting(but=None if listener is None else listener.name)

    async def _close_replicas(self) -> None:
        # Not on the loop: ten thousand logs take seconds, and others may need this node's vote until then.
        await asyncio.get_running_loop().run_in_executor(None, self._replicas.close)
        if self._clustered is not None:
            self._clustered.note_clean_stop()

    # -- in the background -------------------------------------------------

    def _jobs(self) -> Iterator[tuple[Callable[[], float], Callable[[], Awaitable[None]]]]:
        """(how many ms to wait before each run, the work)"""
        yield (lambda: TICK_MS), self._tick
        yield (lambda: self.settings.current.log_retention_check_interval_ms), self._retain
        yield (lambda: self.settings.current.producer_id_expiration_check_interval_ms), self._expire
        yield self._checkpoint_interval_ms, self._checkpoint
        yield (lambda: self.settings.current.offsets_retention_check_interval_ms), self._coordinators.expire_offsets
        yield self._time_out_interval_ms, self._coordinators.abort_timed_out
        yield self._forget_interval_ms, self._coordinators.forget_expired

    async def _tick(self) -> None:
        self._replicas.housekeeping.flush_due()
        self._replicas.housekeeping.remove_deleted()

    async def _retain(self) -> None:
        await self._in_chunks(self._replicas.housekeeping.apply_retention)

    async def _expire(self) -> None:
        await self._in_chunks(self._replicas.housekeeping.expire_producers)

    def _checkpoint_interval_ms(self) -> int:
        config = self.settings.current
        return min(config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms)

    def _time_out_interval_ms(self) -> int:
        return self.settings.current.transaction_abort_timed_out_transaction_cleanup_interval_ms

    def _forget_interval_ms(self) -> int:
        return self.settings.current.transaction_remove_expired_transaction_cleanup_interval_ms

    async def _checkpoint(self) -> None:
        self._replicas.housekeeping.checkpoint()

    async def _in_chunks(self, work: Callable[[Iterable[Replica]], None]) -> None:
        partitions = iter(self._replicas.table)
        while chunk := list(islice(partitions, HOUSEKEEPING_CHUNK)):
            work(chunk)
            await asyncio.sleep(0)


async def _repeat(wait_ms: Callable[[], float], work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(max(wait_ms(), INTERVAL_MS_MIN) / 1000)
        try:
            await work()
        except Exception:
            log.exception("periodic work failed; it is tried again")


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _random_id() -> str:
    return base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
