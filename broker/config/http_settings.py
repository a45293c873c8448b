"""The broker settings of the HTTP listeners: health, metrics, and records as JSON (docs/http.md)."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.broker.config.key import Between, OneOf, Origins, Scope, integer, listing, string
from tidemark.broker.config.sasl_settings import SaslSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class HttpSettings(SaslSettings):
    http_listeners: tuple[str, ...] = listing(
        (),
        "The addresses that serve HTTP, as NAME://host:port. The names HTTP and HTTPS are PLAINTEXT and SSL unless"
        " listener.security.protocol.map says otherwise; with SASL_PLAINTEXT or SASL_SSL, clients name themselves in"
        " the Authorization header. Without any, nothing of it is loaded. Tidemark's own setting.",
    )
    http_advertised_listeners: tuple[str, ...] = listing(
        (),
        "The addresses of http.listeners as clients reach them, as NAME://host:port: other nodes redirect to them, and"
        " consumer instances are found there. By default those of http.listeners, unless they are of every interface."
        " Tidemark's own setting.",
    )
    http_max_connections: int = integer(
        1_000, "How many HTTP connections may be open at once. Tidemark's own setting.", check=Between(1)
    )
    http_request_max_bytes: int = integer(
        2 << 20, "The longest body of an HTTP request. Tidemark's own setting.", check=Between(1_024)
    )
    http_queued_max_bytes: int = integer(
        64 << 20,
        "How many bytes of HTTP requests' bodies may be in memory at once; more are refused with 503. And how many of"
        " answers, from records that become JSON to what clients have not read; if they are more, the slowest clients"
        " are cut off, and others wait. Tidemark's own setting.",
        check=Between(1_024),
    )
    http_request_timeout_ms: int = integer(
        30_000,
        "How long an HTTP client may take to send a request, to read an answer's next bytes, or to stay silent between"
        " requests, before it is cut off. Tidemark's own setting.",
        check=Between(100),
    )
    http_cors_allowed_origins: tuple[str, ...] = listing(
        (),
        "The origins whose pages may use this interface from a browser (https://app.example, or * for all of them). By"
        " default no CORS header is sent. Tidemark's own setting.",
        check=Origins(),
    )
    http_consumers_max: int = integer(
        1_000,
        "How many consumer instances HTTP clients may have on this node. Tidemark's own setting.",
        check=Between(0),
    )
    http_consumer_idle_ms: int = integer(
        300_000,
        "A consumer instance that was not used over HTTP for so long leaves its group and is gone, unless it was made"
        " with an idle_ms of its own. Tidemark's own setting.",
        check=Between(1_000),
    )
    tidemark_metrics_detail: str = string(
        "partition",
        "How much /metrics tells of topics and groups: each partition, each topic, or the broker as a whole. Tidemark's"
        " own setting.",
        check=OneOf(("partition", "topic", "broker")),
        scope=Scope.CLUSTER_WIDE,
    )
