"""One broker: its parts, in the order in which they are started; they are stopped in the opposite order.

A node with a controller listener has other nodes beside it (`ClusterRuntime`); one without is a cluster of its own
(`StandaloneRuntime`). That choice is made once, in `_runtime`; everything else is the same for both.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.background_jobs import background_jobs
from tidemark.broker.cluster.identity import NodeIdentity
from tidemark.broker.cluster.topic_creation import TopicCreation
from tidemark.broker.config import BrokerConfig, ConfigError, Listener
from tidemark.broker.coordinators import Coordinators
from tidemark.broker.core.api_table import served_on
from tidemark.broker.core.loop_delay import Alarm, LoopDelay
from tidemark.broker.core.periodic import PeriodicJobs
from tidemark.broker.core.registry import find_route
from tidemark.broker.handlers.fetch.sessions import FetchSessions
from tidemark.broker.logs.levels import LogLevels
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.min_isr import ignored_value
from tidemark.broker.metadata.producer_ids import ProducerIds
from tidemark.broker.metadata.records import Endpoint
from tidemark.broker.quotas.service import Quotas
from tidemark.broker.replication.replicas import Replicas
from tidemark.broker.server.dispatch import Dispatcher
from tidemark.broker.server.request_log import RequestLog
from tidemark.broker.server.server import Server
from tidemark.environment import monotonic, wall_clock_ms
from tidemark.storage import LogDirectory

if TYPE_CHECKING:
    from tidemark.broker.cluster_runtime import ClusterRuntime
    from tidemark.broker.http.authentication import HttpAuthentication
    from tidemark.broker.http.runtime import HttpRuntime
    from tidemark.broker.metrics.registry import Metrics
    from tidemark.broker.peers import Connector
    from tidemark.broker.security.delegation_tokens import DelegationTokens
    from tidemark.broker.security.guard import Guard
    from tidemark.broker.security.sasl.authentication import SaslAuthentication
    from tidemark.broker.standalone_runtime import StandaloneRuntime
    from tidemark.broker.telemetry.forwarding import Forwarder
    from tidemark.broker.telemetry.service import Telemetry
    from tidemark.broker.tls.endpoints import TlsEndpoints

log = logging.getLogger(__name__)

METADATA_DIRECTORY: Final = "tidemark-metadata"
WARM_UP_DELAY_SECONDS: Final = 0.5  # requests come first
WARM_UP_PAUSE_SECONDS: Final = 0.02


class Node:
    """After `start()`, `address` says where clients connect."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        failed: Callable[[BaseException], None] | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        """`failed` is called when the node cannot go on, after the reason is logged. `alarm` tells what holds up the
        event loop, if this process has one to spare."""
        self.config = config
        self.settings = DynamicConfig(config)
        self.address = ("", 0)
        self.http_endpoints: dict[str, tuple[str, int]] = {}  # by listener, where HTTP is served
        self._failed = failed or (lambda _error: None)
        self._alarm = alarm
        self._opened = AsyncExitStack()
        self._guard: Guard | None = None

    async def start(self) -> None:
        """Returns when clients are served. After a failure nothing is held open."""
        async with AsyncExitStack() as opened:
            await self._start(opened)
            self._opened = opened.pop_all()

    async def stop(self) -> None:
        """Finish what was accepted, then put everything safely on disk: the start, backwards."""
        await self._opened.aclose()

    async def _start(self, opened: AsyncExitStack) -> None:
        """Every part, and (pushed on `opened`) how it is stopped."""
        config = self.config
        self._stopping = opened
        directories, offline = self._open_directories(opened)
        identity = NodeIdentity(config, directories)
        services: dict[str, Callable[[], Any]] = {}
        self._tls = self._secure(opened)
        self._replicas = Replicas(node_id=config.node_id, config=config, directories=directories, now_ms=wall_clock_ms)
        self._replicas.table.offline_directories.update(offline)
        self._quotas = Quotas(config)
        self._log_levels = LogLevels()
        self._telemetry_forwarder = self._new_forwarder(opened)
        self._cluster = self._runtime(identity, services)
        self._store = self._cluster.store
        if config.authorizer_class_name:
            self._guard = self._make_guard(opened)
        opened.push_async_callback(self._cluster.close)
        opened.push_async_callback(self._close_replicas)
        opened.push_async_callback(self._replicas.stop_replication)
        opening = self._replicas.roles.opening.begin_loading_in_background()
        self._creation = TopicCreation(
            self._store, self.settings, opened=opening.finished, forwarding=self._cluster.forwarding
        )
        self._coordinators = Coordinators(
            node_id=config.node_id, settings=self.settings, replicas=self._replicas.table, creation=self._creation
        )
        self._replicas.roles.opening.opened_later = self._coordinators.opened
        services.update(self._services())
        dispatcher = self._new_dispatcher(services)
        dispatcher.hold_to(self._quotas)
        self._log_slow_requests(dispatcher)
        if config.tidemark_traces_otlp_endpoint:
            self._trace_requests(dispatcher, opened)
        self._server = Server(config, dispatcher, tls=self._tls)
        self._server.current_config = lambda: self.settings.current
        opened.callback(self._replicas.table.stop_appending)  # when the last connection is gone
        opened.push_async_callback(self._server.close)
        opened.push_async_callback(dispatcher.finish_tasks)
        for listener in config.parsed_listeners:
            await self._server.listen(listener, handle=self._guarded(listener, dispatcher))
        self.address = next(iter(self._server.endpoints.values()))
        http = self._http = await self._open_http(opened)
        await self._cluster.join(self._server, services, self._guarded)
        identity.confirm(self._store.image.cluster_id)
        if warning := ignored_value(self._store.image, config):
            log.warning("%s", warning)
        self._follow_metadata()
        await opening.finished()
        self._replicas.retire_strays()
        self._cluster.start_replication()
        opened.callback(self._replicas.end_waits)
        opened.callback(self._coordinators.close)
        opened.callback(self._stop_accepting)
        self.loop_delay = LoopDelay(alarm=self._alarm)
        opened.callback(self.loop_delay.stop)
        self.loop_delay.start()
        jobs = PeriodicJobs()
        opened.push_async_callback(jobs.stop)
        jobs.start(background_jobs(self.settings, self._replicas, self._coordinators))
        if config.delegation_token_secret_key:
            jobs.start(self._delegation_tokens.jobs())
        if self._tls is not None:
            self._watch_certificates(self._tls, jobs)
        await self._server.serve()
        opened.push_async_callback(self._cluster.leave)
        await self._cluster.unfence()
        if http is not None:
            http.add_metrics(self._metrics(dispatcher, http), guard=self._guard)
            http.add_api(
                handler_of=dispatcher.handler,
                forwarding=self._cluster.forwarding,
                guard=self._guard,
                quotas=self._quotas,
                sasl=self._http_authentication,
                traces=dispatcher.traces,
            )
            http.log_requests(lambda: self.settings.current.tidemark_log_slow_request_ms)
            http.hold_to(self._server.rates)
            opened.push_async_callback(http.close_consumers)
            opened.callback(http.stop_serving)
            http.serve()

    async def warm_up(self) -> None:
        """Load, a little at a time, what the start left to the first request that needs it."""
        await asyncio.sleep(WARM_UP_DELAY_SECONDS)
        for key in served_on("broker"):
            find_route(key)
            await asyncio.sleep(WARM_UP_PAUSE_SECONDS)
        _ = self._coordinators.groups
        await asyncio.sleep(WARM_UP_PAUSE_SECONDS)
        _ = self._coordinators.transactions

    # -- parts -------------------------------------------------------------

    def _open_directories(self, opened: AsyncExitStack) -> tuple[list[LogDirectory], dict[str, str]]:
        """Those that can be used, and why the others cannot. A node does without some of its log directories, but not
        without its metadata, nor without all of them."""
        directories, offline = [], {}
        for path in self.config.log_dirs:
            try:
                directory = LogDirectory.open(path, now_ms=wall_clock_ms)
                opened.callback(directory.close)
                directory.meta_properties()
            except OSError as error:
                if len(self.config.log_dirs) == 1 or self._is_metadata_directory(path):
                    raise
                log.error("log directory %s is offline: %s", path, error)
                offline[os.path.abspath(path)] = str(error)
                continue
            directories.append(directory)
        return directories, offline

    def _is_metadata_directory(self, path: str) -> bool:
        return os.path.abspath(path) == os.path.abspath(self.config.metadata_log_dir or self.config.log_dirs[0])

    def _secure(self, opened: AsyncExitStack) -> TlsEndpoints | None:
        """What speaks TLS. Where no listener does, nothing of it is loaded."""
        config = self.config
        listeners = [*config.parsed_listeners, *config.parsed_http_listeners, config.parsed_controller_listener]
        secure = [each for each in listeners if each is not None and each.is_encrypted]
        if not secure:
            return None
        from tidemark.broker.tls.endpoints import TlsEndpoints

        tls = TlsEndpoints(config, secure)
        opened.callback(tls.close)
        return tls

    def _new_dispatcher(self, services: dict[str, Callable[[], Any]]) -> Dispatcher:
        """Requests are measured where somebody can ask for the figures."""
        if not self.config.http_listeners:
            return Dispatcher(services)
        from tidemark.broker.server.measured_dispatch import MeasuredDispatcher

        return MeasuredDispatcher(services)

    def _log_slow_requests(self, dispatcher: Dispatcher) -> None:
        """Those that take longer than the settings say; or all of them, while their logger's level says so."""

        def changed() -> None:
            slow_ms = self.settings.current.tidemark_log_slow_request_ms
            slow_seconds = slow_ms / 1000 if slow_ms >= 0 else float("inf")
            requests = RequestLog(slow_seconds=slow_seconds, clock=monotonic)
            dispatcher.log_to(requests if requests.is_wanted else None)

        self._log_levels.watch(changed)
        self.settings.watch(lambda _config, _image: changed())
        changed()

    def _trace_requests(self, dispatcher: Dispatcher, opened: AsyncExitStack) -> None:
        try:
            from tidemark.broker.server.traces import RequestTraces
        except ImportError as error:
            key = "tidemark.traces.otlp.endpoint"
            problem = f"{key}: it needs packages that are not installed: pip install tidemark[traces] ({error})."
            raise ConfigError(problem, key=key) from None
        dispatcher.traces = RequestTraces(self.config)
        opened.push_async_callback(dispatcher.traces.close)

    async def _open_http(self, opened: AsyncExitStack) -> HttpRuntime | None:
        """Where no listener is set for it, nothing of it is loaded."""
        if not self.config.http_listeners:
            return None
        from tidemark.broker.http.runtime import HttpRuntime

        http = HttpRuntime(self.config, store=self._store, replicas=self._replicas.table, tls=self._tls)
        opened.push_async_callback(http.close)
        await http.open()
        self._http, self.http_endpoints = http, http.endpoints
        return http

    def _http_authentication(self, listener: Listener) -> HttpAuthentication:
        from tidemark.broker.http.authentication import HttpAuthentication

        return HttpAuthentication(
            self._sasl.mechanisms(listener),
            threads=self._sasl.threads,
            log=self._sasl.log,
            failure_delay_seconds=self._sasl.failure_delay_seconds,
        )

    def _metrics(self, dispatcher: Dispatcher, http: HttpRuntime) -> Metrics:
        from tidemark.broker.metrics.of_node import node_metrics
        from tidemark.broker.server.measured_dispatch import MeasuredDispatcher

        assert isinstance(dispatcher, MeasuredDispatcher)
        return node_metrics(
            settings=self.settings,
            dispatcher=dispatcher,
            loop_delay=self.loop_delay,
            replicas=self._replicas,
            store=self._store,
            coordinators=self._coordinators,
            server=self._server,
            quotas=self._quotas,
            telemetry=lambda: self.__dict__.get("_telemetry"),
            logins=lambda: self._sasl.log if "_sasl" in self.__dict__ else None,
            tls=self._tls,
            http=lambda: http.load,
            http_requests=http.requests,
        )

    def _watch_certificates(self, tls: TlsEndpoints, jobs: PeriodicJobs) -> None:
        from tidemark.broker.tls.watch import CertificateWatch

        self.settings.checks.append(tls.check)
        watch = CertificateWatch(tls, lambda: self.settings.current)
        self.settings.watch(lambda _config, _image: watch.settings_changed())
        watch.settings_changed()  # they may have changed while this node was away
        jobs.start(watch.jobs())

    def _runtime(
        self, identity: NodeIdentity, services: dict[str, Callable[[], Any]]
    ) -> ClusterRuntime | StandaloneRuntime:
        """What differs between a node among others and a node alone. Only the one that is needed is loaded."""
        path = Path(self.config.metadata_log_dir or self.config.log_dirs[0]) / METADATA_DIRECTORY
        if self.config.parsed_controller_listener is None:
            from tidemark.broker.standalone_runtime import StandaloneRuntime

            return StandaloneRuntime(
                self.config,
                path,
                identity=identity,
                replicas=self._replicas,
                endpoints=self._endpoints,
                failed=self._failed,
            )
        from tidemark.broker.cluster_runtime import ClusterRuntime

        return ClusterRuntime(
            self.config,
            path,
            settings=self.settings,
            identity=identity,
            replicas=self._replicas,
            services=services,
            endpoints=self._endpoints,
            failed=self._failed,
            connectors=self._connector,
        )

    def _make_guard(self, opened: AsyncExitStack) -> Guard:
        """Who may do what. Not loaded where there is no authorizer."""
        from tidemark.broker.security.audit import Audit
        from tidemark.broker.security.authorizer import Authorizer
        from tidemark.broker.security.guard import Guard

        authorizer = Authorizer(self.config)
        self._store.watch(authorizer.follow)  # from the first record on: other nodes ask soon
        audit = Audit(tells_allowed=self.config.tidemark_audit_allowed)
        opened.callback(audit.close)
        guard = Guard(authorizer, store=self._store, settings=self.settings, audit=audit)
        if self._cluster.forwarding is not None:
            self._cluster.forwarding.guard = guard.handler
        return guard

    @cached_property
    def _telemetry(self) -> Telemetry | None:
        """Loaded with the first client that asks."""
        if not self.config.takes_telemetry:
            return None
        from tidemark.broker.telemetry.service import Telemetry

        return Telemetry(self._store, self.settings, clock=monotonic, forward=self._telemetry_forwarder)

    def _new_forwarder(self, opened: AsyncExitStack) -> Forwarder | None:
        endpoint = self.config.tidemark_telemetry_otlp_endpoint
        if not endpoint:
            return None
        from tidemark.broker.telemetry.forwarding import Forwarder

        forwarder = Forwarder(endpoint)
        opened.callback(forwarder.close)
        return forwarder

    def _services(self) -> dict[str, Callable[[], Any]]:
        """What a handler may name as an argument."""
        slots_max = self.config.max_incremental_fetch_session_cache_slots
        made: dict[str, Any] = {
            "cluster": self._cluster.view,
            "creation": self._creation,
            "fetch_sessions": FetchSessions(slots_max=slots_max, time=monotonic),
            "guard": self._guard,
            "follower_sessions": self._replicas.follower_sessions,
            "directory_moves": self._replicas.moves,
            "log_levels": self._log_levels,
            "housekeeping": self._replicas.housekeeping,
            "producer_ids": ProducerIds(self._cluster.allocate_producer_ids),
            "quotas": self._quotas,
            "replicas": self._replicas.table,
            "settings": self.settings,
            "store": self._store,
        }
        return {
            **{name: partial(made.__getitem__, name) for name in made},
            "delegation_tokens": lambda: self._delegation_tokens,
            "telemetry": lambda: self._telemetry,
            "groups": lambda: self._coordinators.groups,
            "transactions": lambda: self._coordinators.transactions,
            **self._cluster.services(),
        }

    def _guarded(self, listener: Listener, dispatcher: Dispatcher) -> Callable[[Any, bytearray], None]:
        """Where clients log in first, nothing else reaches the dispatcher before that."""
        if not listener.has_logins:
            return dispatcher
        self._server.first_request_bytes_max[listener.name] = self.config.sasl_server_max_receive_size
        return self._sasl.gate(listener, dispatcher)

    def _connector(self, name: str) -> Connector | None:
        """What connects to other nodes' listener of this name, if that takes more than a socket."""
        secure = None if self._tls is None else self._tls.connector(name)
        listeners = [*self.config.parsed_listeners, self.config.parsed_controller_listener]
        if not any(each is not None and each.name == name and each.has_logins for each in listeners):
            return secure
        from tidemark.broker.config.sasl import ListenerSasl
        from tidemark.broker.peers.login import LoginConnector, login_of
        from tidemark.broker.peers.peers import client_id_of

        login = login_of(ListenerSasl(self.config, name))
        return LoginConnector(login, client_id=client_id_of(self.config.node_id), inner=secure)

    @cached_property
    def _delegation_tokens(self) -> DelegationTokens:
        from tidemark.broker.security.delegation_tokens import DelegationTokens

        return DelegationTokens(self.config, self._store, now_ms=wall_clock_ms)

    @cached_property
    def _sasl(self) -> SaslAuthentication:
        from tidemark.broker.security.sasl.authentication import SaslAuthentication

        sasl = SaslAuthentication(
            self.config,
            image=lambda: self._store.image,
            now_ms=wall_clock_ms,
            current_config=lambda: self.settings.current,
            tokens=self._delegation_tokens,
        )
        self._stopping.callback(sasl.close)
        return sasl

    def _endpoints(self) -> list[Endpoint]:
        """Of Kafka clients, and after them those of HTTP clients, whom other nodes redirect here."""
        return [
            *(self._endpoint(each, self._server.endpoints) for each in self.config.parsed_advertised_listeners),
            *(self._endpoint(each, self.http_endpoints) for each in self.config.parsed_http_advertised_listeners),
        ]

    def _endpoint(self, listener: Listener, opened: Mapping[str, tuple[str, int]]) -> Endpoint:
        port = listener.port or opened[listener.name][1]
        return Endpoint(name=listener.name, host=listener.host, port=port, security_protocol=listener.security_protocol)

    def _follow_metadata(self) -> None:
        """From here on settings, replicas and coordinators are as the metadata says."""
        self.settings.watch(self._replicas.roles.reconfigure_all)
        self.settings.watch(self._coordinators.reconfigure)
        self.settings.watch(self._server.rates.configure)
        quotas = (self._quotas.follow, self._server.rates.follow)
        empty = Image()
        for follow in (self.settings.follow, self._replicas.roles.follow, self._coordinators.follow, *quotas):
            self._store.watch(follow)
            follow(empty, self._store.image)

    # -- stopping ----------------------------------------------------------

    def _stop_accepting(self) -> None:
        """The cluster's own listener goes last: others may need this node's vote until then."""
        listener = self.config.parsed_controller_listener
        self._server.stop_accepting(but=None if listener is None else listener.name)

    async def _close_replicas(self) -> None:
        await self._replicas.roles.stop_following()
        # Not on the loop: ten thousand logs take seconds, and others may need this node's vote until then.
        close = partial(self._replicas.close, broker_epoch=self._cluster.broker_epoch)
        await asyncio.get_running_loop().run_in_executor(None, close)
