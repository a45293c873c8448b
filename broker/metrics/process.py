"""Connections, logins, memory and descriptors of this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark import portable
from tidemark.broker.metrics.exposition import Collected, Samples, labels
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.broker.server.server import Server
from tidemark.environment import monotonic

if TYPE_CHECKING:
    from tidemark.broker.security.sasl.login_log import LoginLog
    from tidemark.broker.tls.endpoints import TlsEndpoints

_SOCKETS: Final = "kafka_server_socketservermetrics"
SOFTWARE_MAX: Final = 50  # kinds of client software that are told apart: clients choose their names

CONNECTIONS: Final = Metric(
    name=f"{_SOCKETS}_connection_count", kind=Kind.GAUGE, labels=("listener",), help="Open connections, by listener."
)
SOFTWARE: Final = Metric(
    name=f"{_SOCKETS}_connections",
    kind=Kind.GAUGE,
    labels=("listener", "clientSoftwareName", "clientSoftwareVersion"),
    help=f"Open connections by client software. The most frequent {SOFTWARE_MAX} are told apart.",
)
ACCEPTED: Final = Metric(
    name=f"{_SOCKETS}_connection_creation", kind=Kind.COUNTER, labels=("listener",), help="Connections accepted."
)
REFUSED: Final = Metric(
    name=f"{_SOCKETS}_connection_refused",
    kind=Kind.COUNTER,
    labels=("listener",),
    help="Connections refused because of a limit.",
)
LOGINS: Final = Metric(
    name=f"{_SOCKETS}_successful_authentication", kind=Kind.COUNTER, help="Logins by SASL that succeeded."
)
FAILED_LOGINS: Final = Metric(
    name=f"{_SOCKETS}_failed_authentication", kind=Kind.COUNTER, help="Logins by SASL that failed."
)
TLS_FAILURES: Final = Metric(
    name="tidemark_tls_failures",
    kind=Kind.COUNTER,
    labels=("listener",),
    help="Connections that ended because TLS did not work: no certificate that is trusted, no TLS at all, a handshake"
    " that took too long.",
)
HTTP_CONNECTIONS: Final = Metric(
    name="tidemark_http_connections", kind=Kind.GAUGE, help="Open connections of the HTTP listeners."
)
MEMORY: Final = Metric(
    name="tidemark_memory_bytes",
    kind=Kind.GAUGE,
    labels=("part",),
    help="Bytes held by parts of the broker: requests that arrive, or wait (requests), those of other nodes to the"
    " controller (controller), bodies of HTTP requests (http), records that become JSON for HTTP clients,"
    " and what these have not read yet (http_answers).",
)
BUILD: Final = Metric(
    name="tidemark_build", kind=Kind.INFO, labels=("version", "node_id"), help="The version that runs."
)
CPU: Final = Metric(name="process_cpu_seconds", kind=Kind.COUNTER, help="User and system time of the process.")
RESIDENT: Final = Metric(
    name="process_resident_memory_bytes", kind=Kind.GAUGE, help="Memory of the process (resident set size)."
)
DESCRIPTORS: Final = Metric(name="process_open_fds", kind=Kind.GAUGE, help="Open file descriptors.")
DESCRIPTORS_MAX: Final = Metric(name="process_max_fds", kind=Kind.GAUGE, help="How many may be open.")
UPTIME: Final = Metric(name="tidemark_uptime_seconds", kind=Kind.GAUGE, help="How long this node runs.")


class ProcessMetrics:
    METRICS: Final = (
        CONNECTIONS,
        SOFTWARE,
        ACCEPTED,
        REFUSED,
        LOGINS,
        FAILED_LOGINS,
        TLS_FAILURES,
        HTTP_CONNECTIONS,
        MEMORY,
        BUILD,
        UPTIME,
        CPU,
        RESIDENT,
        DESCRIPTORS,
        DESCRIPTORS_MAX,
    )

    def __init__(
        self,
        server: Server,
        *,
        logins: Callable[[], LoginLog | None],
        tls: TlsEndpoints | None,
        http: Callable[[], tuple[int, int, int]],
        version: Callable[[], str],
        node_id: int,
    ) -> None:
        """`logins`: None where nobody logs in, `tls` where nobody speaks it; `http`: connections, and bytes of bodies
        and answers, of the HTTP listeners."""
        self._server = server
        self._logins = logins
        self._tls = tls
        self._http = http
        self._version = version
        self._node_id = node_id
        self._started = monotonic()

    def collect(self) -> Collected:
        server, logins = self._server, self._logins()
        per_listener: Counter[str] = Counter(dict.fromkeys(server.endpoints, 0))
        software: Counter[tuple[str, str]] = Counter()
        for number, connection in enumerate(server.connections()):
            per_listener[connection.listener] += 1
            if connection.client_software:
                software[connection.listener, connection.client_software] += 1
            if not number % 500:
                yield
        http_connections, http_bytes, http_answer_bytes = self._http()
        yield
        return [
            (CONNECTIONS, _by_listener(per_listener)),
            (SOFTWARE, _by_software(software)),
            (ACCEPTED, _by_listener(server.accepted)),
            (REFUSED, _by_listener(server.refused)),
            (LOGINS, [("", 0 if logins is None else logins.accepted_count)]),
            (FAILED_LOGINS, [("", 0 if logins is None else logins.refused_count)]),
            (TLS_FAILURES, _by_listener(Counter({} if self._tls is None else self._tls.failed_counts()))),
            (HTTP_CONNECTIONS, [("", http_connections)]),
            (
                MEMORY,
                [
                    (labels(part="requests"), server.memory.used_bytes),
                    (labels(part="controller"), server.controller_memory.used_bytes),
                    (labels(part="http"), http_bytes),
                    (labels(part="http_answers"), http_answer_bytes),
                ],
            ),
            (BUILD, [(labels(version=self._version(), node_id=self._node_id), 1)]),
            (UPTIME, [("", monotonic() - self._started)]),
            (CPU, [("", portable.cpu_seconds())]),
            (RESIDENT, [("", portable.resident_bytes())]),
            (DESCRIPTORS, [("", portable.open_descriptors())]),
            (DESCRIPTORS_MAX, [("", portable.descriptor_limit())]),
        ]


def _by_listener(counts: Counter[str]) -> Samples:
    return [(labels(listener=listener), count) for listener, count in sorted(counts.items())]


def _by_software(software: Counter[tuple[str, str]]) -> Samples:
    found: Counter[tuple[str, str, str]] = Counter()
    for (listener, text), count in software.most_common(SOFTWARE_MAX):
        name, _, version = text.partition(" ")
        found[listener, name, version] += count
    others = software.total() - found.total()
    if others:
        found["", "other", ""] = others
    return [
        (labels(listener=listener, clientSoftwareName=name, clientSoftwareVersion=version), count)
        for (listener, name, version), count in sorted(found.items())
    ]
