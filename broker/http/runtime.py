"""A node's HTTP listeners put together: opened early, so that health can be asked while a node joins its cluster, and
serving the rest once the node does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.config.exposure import is_loopback
from tidemark.broker.core.acl import CLUSTER_NAME, AclOperation, ResourceType
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Handler, Route
from tidemark.broker.http.api import HttpApi
from tidemark.broker.http.application import HttpApplication, starting_or_stopping
from tidemark.broker.http.cors import Cors
from tidemark.broker.http.health import Check, Health
from tidemark.broker.http.listener import HttpListener
from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.metrics import metrics_route
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.rebinding import check_host
from tidemark.broker.http.request_log import HttpRequestLog
from tidemark.broker.http.router import HttpRoute, Router
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metrics.http import HttpRequests
from tidemark.broker.metrics.registry import Metrics
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.cluster.forwarding import Forwarding
    from tidemark.broker.http.authentication import HttpAuthentication
    from tidemark.broker.quotas.connections import ConnectionRates
    from tidemark.broker.quotas.service import Quotas
    from tidemark.broker.security.guard import Guard
    from tidemark.broker.server.traces import RequestTraces
    from tidemark.broker.tls.endpoints import TlsEndpoints


NewSasl = Callable[[Listener], "HttpAuthentication"]


class HttpRuntime:
    def __init__(
        self, config: BrokerConfig, *, store: MetadataStore, replicas: ReplicaTable, tls: TlsEndpoints | None
    ) -> None:
        self._config = config
        self._store = store
        self._replicas = replicas
        self._api: HttpApi | None = None
        self._described: tuple[tuple[HttpRoute, ...], asyncio.Future[HttpResponse]] | None = None
        router = Router()
        self.health = Health(self._checks(), node_id=config.node_id)
        router.add(*self.health.routes())
        self._application = HttpApplication(router, Cors(config.http_cors_allowed_origins))
        self._listener = HttpListener(config, self._application, tls=tls)
        self.endpoints = self._listener.endpoints

    async def open(self) -> None:
        await self._listener.open(self._config.parsed_http_listeners)

    def add_metrics(self, metrics: Metrics, *, guard: Guard | None) -> None:
        """`guard`: where there is one, who scrapes needs the right to describe the cluster."""

        def may_see(request: HttpRequest) -> None:
            if guard is None:
                return
            rights = guard.authorizer.rights(request.principal, request.host)
            if not rights.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
                raise Problem.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Metrics need DESCRIBE on the cluster.")

        self._application.router.add(metrics_route(metrics, may_see=may_see, go_on=self._listener.go_on_in_turn))

    def add_api(
        self,
        *,
        handler_of: Callable[[Route, int], Handler],
        forwarding: Forwarding | None,
        guard: Guard | None,
        quotas: Quotas,
        sasl: NewSasl,
        traces: RequestTraces | None,
    ) -> None:
        """`sasl`: makes what checks credentials, for listeners where clients have to name themselves."""
        if traces is not None:
            from tidemark.broker.http.traces import HttpTraces

            self._application.traces = HttpTraces(traces)
        held = self._application.quotas = HttpQuotas(quotas)
        api = self._api = HttpApi(
            self._config,
            store=self._store,
            handler_of=handler_of,
            forwarding=forwarding,
            guard=guard,
            quotas=held,
            go_on=self._listener.go_on_in_turn,
            room=self._listener.held,
        )
        self._application.router.add(*api.routes(), HttpRoute("GET", "/openapi.json", self._openapi, query=()))
        listeners = self._config.parsed_http_listeners
        authentications = {each.name: sasl(each) for each in listeners if each.has_logins}
        plain = [each for each in listeners if each.security_protocol == "PLAINTEXT"]
        of_this_machine = {each.name for each in plain if is_loopback(each.host)}

        async def authenticate(request: HttpRequest) -> Principal:
            if not self._application.is_serving:
                raise starting_or_stopping()
            if request.listener in of_this_machine:
                check_host(request)
            found = authentications.get(request.listener)
            return request.principal if found is None else await found.principal_of(request)

        self._application.authenticate = authenticate

    async def _openapi(self, _request: HttpRequest) -> HttpResponse:
        """Made once, by a thread: some that are busy in Python keep the event loop waiting for the interpreter."""
        routes = tuple(self._application.router.routes)
        if self._described is None or self._described[0] != routes:
            self._described = routes, asyncio.ensure_future(_described(routes))
        return await asyncio.shield(self._described[1])  # others may wait for it, too

    @property
    def requests(self) -> HttpRequests:
        return self._application.requests

    def log_requests(self, slow_ms: Callable[[], int]) -> None:
        self._application.log = HttpRequestLog(slow_ms)

    @property
    def load(self) -> tuple[int, int, int]:
        """Connections, bytes of requests' bodies, and of answers."""
        return self._listener.connection_count, self._listener.body_bytes, self._listener.held.used_bytes

    def serve(self) -> None:
        """The node serves clients from now on."""
        self._application.is_serving = True

    def stop_serving(self) -> None:
        self._application.is_serving = False

    async def close_consumers(self) -> None:
        """While there is still a coordinator that they can leave their groups at."""
        if self._api is not None:
            await self._api.consumers.close()

    def hold_to(self, rates: ConnectionRates) -> None:
        """From now on new connections are counted."""
        self._listener.rates = rates

    async def close(self) -> None:
        await self._listener.close()

    # -- is this node ready? -----------------------------------------------

    def _checks(self) -> dict[str, Check]:
        return {
            "metadata": self._metadata_lacks,
            "listeners": self._listeners_lack,
            "lease": self._lease_lacks,
            "logs": self._logs_lack,
            "log_dirs": self._log_dirs_lack,
        }

    def _metadata_lacks(self) -> str | None:
        node = self._store.driver.node
        if node.leader_id is None:
            return "there is no controller that this node knows of"
        if not self._store.image.is_active(self._config.node_id):
            return "this broker is not registered, or fenced"
        behind = node.commit_index - self._store.applied_index
        return f"{behind} metadata records are not applied yet" if behind > 0 else None

    def _listeners_lack(self) -> str | None:
        return None if self._application.is_serving else "the listeners for clients are not open"

    def _lease_lacks(self) -> str | None:
        """A node that has not joined its cluster yet knows of nobody who could have one in its place."""
        has_joined = self._application.is_serving or self._store.driver.node.leader_id is not None
        is_held = has_joined and self._replicas.is_leased
        return None if is_held else "this node holds no lease: it hears from no controller"

    def _logs_lack(self) -> str | None:
        """At the start only: a node that serves opens the logs of new topics all the time."""
        opened, total = self._replicas.opening_progress()
        return f"{opened} of {total} logs are open" if total and not self._application.is_serving else None

    def _log_dirs_lack(self) -> str | None:
        offline = self._replicas.offline_directories
        return None if not offline else "; ".join(f"{path} is offline: {offline[path]}" for path in sorted(offline))


async def _described(routes: tuple[HttpRoute, ...]) -> HttpResponse:
    from tidemark.broker.http.openapi import document  # few ask for it

    return await json_response(await asyncio.get_running_loop().run_in_executor(None, document, routes))
