"""The metrics of a whole node, made from its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.broker.coordinators import Coordinators
from tidemark.broker.core.loop_delay import LoopDelay
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metrics.cluster import ClusterMetrics
from tidemark.broker.metrics.groups import GroupMetrics
from tidemark.broker.metrics.http import HttpMetrics, HttpRequests
from tidemark.broker.metrics.process import ProcessMetrics
from tidemark.broker.metrics.quotas import QuotaMetrics
from tidemark.broker.metrics.registry import Metrics
from tidemark.broker.metrics.requests import RequestMetrics
from tidemark.broker.metrics.telemetry import TelemetryMetrics
from tidemark.broker.metrics.topics import TopicMetrics
from tidemark.broker.metrics.transactions import TransactionMetrics
from tidemark.broker.quotas.service import Quotas
from tidemark.broker.replication.replicas import Replicas
from tidemark.broker.server.measured_dispatch import MeasuredDispatcher
from tidemark.broker.server.server import Server

if TYPE_CHECKING:
    from tidemark.broker.security.sasl.login_log import LoginLog
    from tidemark.broker.telemetry.service import Telemetry
    from tidemark.broker.tls.endpoints import TlsEndpoints


def node_metrics(
    *,
    settings: DynamicConfig,
    dispatcher: MeasuredDispatcher,
    loop_delay: LoopDelay,
    replicas: Replicas,
    store: MetadataStore,
    coordinators: Coordinators,
    server: Server,
    quotas: Quotas,
    telemetry: Callable[[], Telemetry | None],
    logins: Callable[[], LoginLog | None],
    tls: TlsEndpoints | None,
    http: Callable[[], tuple[int, int, int]],
    http_requests: HttpRequests,
) -> Metrics:
    def detail() -> str:
        return settings.current.tidemark_metrics_detail

    table = replicas.table
    return Metrics(
        [
            RequestMetrics(dispatcher.times, loop_delay, server.slow_sends),
            HttpMetrics(http_requests),
            TopicMetrics(table, replicas.cleaner, replicas.scrubber, detail=detail),
            ClusterMetrics(store),
            GroupMetrics(lambda: coordinators.existing_groups, table, detail=detail),
            TransactionMetrics(lambda: coordinators.existing_transactions, table.now_ms),
            QuotaMetrics(quotas.usage),
            TelemetryMetrics(telemetry),
            ProcessMetrics(
                server, logins=logins, tls=tls, http=http, version=_version_later(), node_id=settings.static.node_id
            ),
        ],
        watch_clients=quotas.watch_usage,
    )


def _version_later() -> Callable[[], str]:
    """Looked up on a thread: that takes some milliseconds."""
    found = asyncio.get_running_loop().run_in_executor(None, _version)
    return lambda: found.result() if found.done() else "unknown"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "unknown"
