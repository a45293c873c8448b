"""What `tidemark top` shows, worked out from two looks at the metrics of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tidemark.cli.metrics_text import Scrape, quantiles, rates

_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"
_REQUESTS: Final = "kafka_network_requestmetrics_"
_SOCKETS: Final = "kafka_server_socketservermetrics_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_GROUP: Final = "kafka_consumergroup_"
_CLIENT: Final = "tidemark_client_"
_HTTP: Final = "tidemark_http_"
_OF_WATCHERS: Final = frozenset(("/livez", "/readyz", "/metrics"))  # asked for all the time, by us, too
FAULTS_NOW: Final = {
    "partitions offline": f"{_CONTROLLER}offlinepartitionscount",
    "partitions under-replicated": f"{_REPLICAS}underreplicatedpartitions",
    "partitions under min.insync.replicas": f"{_REPLICAS}underminisrpartitioncount",
    "replicas offline": f"{_REPLICAS}offlinereplicacount",
    "log directories offline": "kafka_log_logmanager_offlinelogdirectorycount",
    "logs that cannot be cleaned": "kafka_log_logcleanermanager_uncleanablepartitionscount",
    "brokers fenced": f"{_CONTROLLER}fencedbrokercount",
}
OF_THE_CLUSTER: Final = ("partitions offline", "brokers fenced")  # every node tells the same
FAULTS_PER_SECOND: Final = {
    "replicas that left the in-sync set": f"{_REPLICAS}isrshrinks_total",
    "logins refused": f"{_SOCKETS}failed_authentication_total",
    "connections that TLS ended": "tidemark_tls_failures_total",
    "connections refused": f"{_SOCKETS}connection_refused_total",
    "the event loop late": "tidemark_event_loop_late_total",
}

Scrapes = Mapping[str, Scrape | None]


def figures(before: Scrapes, after: Scrapes) -> dict[str, Any]:
    pairs = [(url, was, now) for url, now in after.items() if now is not None and (was := before.get(url)) is not None]
    looks = [(was, now) for _, was, now in pairs]
    return {
        "nodes": [_node(url, was, now) for url, was, now in pairs],
        "silent": [url for url, now in after.items() if now is None],
        "requests": _requests(looks),
        "topics": _topics(looks),
        "groups": _groups(now for _, now in looks),
        "clients": _clients(looks),
        "faults": _faults(looks),
    }


def _node(url: str, was: Scrape, now: Scrape) -> dict[str, Any]:
    def rate(name: str) -> float:
        return sum(rates(was, now, name).values())

    [(version, node_id)] = now.by("tidemark_build_info", "version", "node_id") or [("?", "?")]
    return {
        "url": url,
        "node_id": node_id,
        "version": version,
        "uptime_seconds": now.total("tidemark_uptime_seconds"),
        "is_controller": now.total(f"{_CONTROLLER}activecontrollercount") > 0,
        "partitions": int(now.total(f"{_REPLICAS}partitioncount")),
        "leaders": int(now.total(f"{_REPLICAS}leadercount")),
        "connections": int(now.total(f"{_SOCKETS}connection_count")),
        "requests_per_second": rate(f"{_REQUESTS}requests_total") + sum(_http_rates([(was, now)], "path").values()),
        "records_in_per_second": rate(f"{_TOPICS}messagesin_total"),
        "bytes_in_per_second": rate(f"{_TOPICS}bytesin_total"),
        "bytes_out_per_second": rate(f"{_TOPICS}bytesout_total"),
        "cpu_percent": 100 * rate("process_cpu_seconds_total"),
        "memory_bytes": int(now.total("process_resident_memory_bytes")),
    }


Looks = Iterable[tuple[Scrape, Scrape]]
Key = tuple[str, ...]  # values of labels


def _summed(looks: Looks, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for was, now in looks:
        for key, rate in rates(was, now, name, *labels).items():
            found[key] = found.get(key, 0.0) + rate
    return found


def _requests(looks: Looks) -> list[dict[str, Any]]:
    """Of Kafka's clients and over HTTP."""
    kafka = _summed(looks, f"{_REQUESTS}requests_total", "request")
    asked = {
        **_timed(looks, kafka, f"{_REQUESTS}totaltime_seconds", "request"),
        **_timed(looks, _http_rates(looks, "path", "method"), f"{_HTTP}request_seconds", "path", "method"),
    }
    rows = [{"api": _api(*key), **row} for key, row in asked.items()]
    return sorted(rows, key=lambda row: -row["per_second"])


def _timed(looks: Looks, counted: Mapping[Key, float], histogram: str, *labels: str) -> dict[Key, dict[str, Any]]:
    """What is asked for, with how long it takes: of several nodes, on the slowest."""
    slowest: dict[Key, list[float]] = {}
    for was, now in looks:
        for key, (middle, high) in quantiles(was, now, histogram, labels, (0.5, 0.99)).items():
            if middle is not None and high is not None and high >= slowest.get(key, [0.0, 0.0])[1]:
                slowest[key] = [middle, high]
    return {
        key: {
            "per_second": rate,
            "p50_seconds": slowest.get(key, [None, None])[0],
            "p99_seconds": slowest.get(key, [None, None])[1],
        }
        for key, rate in counted.items()
        if rate > 0
    }


def _api(name: str, method: str | None = None) -> str:
    """As it is called on the screen: `Fetch`, or `GET /topics`."""
    if method is None:
        return name
    return f"{method} {name}" if name else "HTTP, to nowhere"


def _http_rates(looks: Looks, *labels: str) -> dict[Key, float]:
    """By labels, of which the first is `path`."""
    found = _summed(looks, f"{_HTTP}requests_total", *labels)
    return {key: rate for key, rate in found.items() if key[0] not in _OF_WATCHERS}


def _topics(looks: Looks) -> list[dict[str, Any]]:
    columns = {
        "records_in_per_second": _summed(looks, f"{_TOPICS}messagesin_total", "topic"),
        "bytes_in_per_second": _summed(looks, f"{_TOPICS}bytesin_total", "topic"),
        "bytes_out_per_second": _summed(looks, f"{_TOPICS}bytesout_total", "topic"),
    }
    return _hottest(columns, ("topic",), lambda row: row["bytes_in_per_second"] + row["bytes_out_per_second"])


def _clients(looks: Looks) -> list[dict[str, Any]]:
    columns = {
        "bytes_in_per_second": _summed(looks, f"{_CLIENT}produced_bytes_total", "user", "client_id"),
        "bytes_out_per_second": _summed(looks, f"{_CLIENT}fetched_bytes_total", "user", "client_id"),
        "loop_share": _summed(looks, f"{_CLIENT}request_seconds_total", "user", "client_id"),
        "throttled_share": _summed(looks, f"{_CLIENT}throttle_seconds_total", "user", "client_id"),
    }
    return _hottest(
        columns, ("user", "client_id"), lambda row: row["bytes_in_per_second"] + row["bytes_out_per_second"]
    )


def _hottest(
    columns: Mapping[str, Mapping[tuple[str, ...], float]], names: tuple[str, ...], heat: Callable[[Any], float]
) -> list[dict[str, Any]]:
    keys = sorted({key for column in columns.values() for key in column})
    rows = [
        {**dict(zip(names, key, strict=True)), **{name: column.get(key, 0.0) for name, column in columns.items()}}
        for key in keys
    ]
    return sorted((row for row in rows if any(row[name] for name in columns)), key=heat, reverse=True)


def _groups(scrapes: Iterable[Scrape]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for now in scrapes:
        lag = now.by(f"{_GROUP}lag", "consumergroup")
        seconds: dict[tuple[str, ...], float] = {}
        for named, value in now.samples(f"{_GROUP}lag_seconds").items():
            key: tuple[str, ...] = (dict(named).get("consumergroup", ""),)
            seconds[key] = max(seconds.get(key, 0.0), value)
        members = now.by(f"{_GROUP}members", "consumergroup")
        rows += [
            {
                "group": group[0],
                "members": int(members.get(group, 0)),
                "lag": int(lag.get(group, 0)),
                "lag_seconds": seconds.get(group, 0.0),
            }
            for group in sorted({*lag, *members})
        ]
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


def _faults(looks: Looks) -> dict[str, float]:
    found: dict[str, float] = {}
    for text, name in FAULTS_NOW.items():
        values = [now.total(name) for _, now in looks]
        if value := max(values, default=0.0) if text in OF_THE_CLUSTER else sum(values):
            found[text] = value
    for text, name in FAULTS_PER_SECOND.items():
        if rate := sum(_summed(looks, name).values()):
            found[f"{text}, per second"] = rate
    for (api, error), rate in _summed(looks, f"{_REQUESTS}errors_total", "request", "error").items():
        if rate and error != "NONE":
            found[f"{api}: {error}, per second"] = rate
    for (_, status), rate in _http_rates(looks, "path", "status").items():
        if rate and status.startswith("5"):
            text = f"HTTP: {status}, per second"
            found[text] = found.get(text, 0.0) + rate
    return found
