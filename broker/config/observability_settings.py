"""The broker settings of logs and traces, and of what clients tell about themselves (docs/observability.md)."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.broker.config.http_settings import HttpSettings
from tidemark.broker.config.key import Between, OneOf, Scope, double, integer, string


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ObservabilitySettings(HttpSettings):
    tidemark_log_format: str = string(
        "console",
        "How the broker's log is written: as lines for people (console), or as a JSON object a line (json). Tidemark's"
        " own setting.",
        check=OneOf(("console", "json")),
    )
    tidemark_log_slow_request_ms: int = integer(
        1_000,
        "Requests that take at least so many milliseconds are logged, with where the time went; -1: none. What Fetch,"
        " JoinGroup and SyncGroup wait for as they were asked to does not count. Tidemark's own setting.",
        check=Between(-1),
        scope=Scope.CLUSTER_WIDE,
    )
    tidemark_traces_otlp_endpoint: str | None = string(
        None,
        "Where spans of requests are sent to, by OTLP over HTTP: http://host:4318/v1/traces. It needs the packages of"
        " tidemark[traces]. Without it nothing is traced. Tidemark's own setting.",
    )
    tidemark_traces_sample_ratio: float = double(
        1.0,
        "Which part of all requests is traced, from 0 to 1, where tidemark.traces.otlp.endpoint is set. Tidemark's own"
        " setting.",
        check=Between(0, 1),
    )
    telemetry_max_bytes: int = integer(
        1 << 20, "How long a client's metrics may be, in one push, compressed or not (KIP-714).", check=Between(1)
    )
    tidemark_telemetry_otlp_endpoint: str | None = string(
        None,
        "Where clients' metrics are forwarded to, by OTLP over HTTP: http://host:4318/v1/metrics. With neither this nor"
        " http.listeners nobody could see them, and clients are not asked for any. Tidemark's own setting.",
    )
    tidemark_telemetry_series_max: int = integer(
        10_000,
        "How many series of clients' metrics /metrics tells at most. Tidemark's own setting.",
        check=Between(0),
    )
