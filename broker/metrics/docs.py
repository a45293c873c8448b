"""Print docs/metrics.md, made from the declarations: `python -m tidemark.broker.metrics.docs > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.broker.metrics.cluster import ClusterMetrics
from tidemark.broker.metrics.groups import GroupMetrics
from tidemark.broker.metrics.http import HttpMetrics
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.broker.metrics.process import ProcessMetrics
from tidemark.broker.metrics.quotas import QuotaMetrics
from tidemark.broker.metrics.requests import RequestMetrics
from tidemark.broker.metrics.telemetry import TelemetryMetrics
from tidemark.broker.metrics.topics import TopicMetrics
from tidemark.broker.metrics.transactions import TransactionMetrics

SECTIONS = {
    "Requests": RequestMetrics.METRICS,
    "HTTP": HttpMetrics.METRICS,
    "Topics and partitions": TopicMetrics.METRICS,
    "The cluster": ClusterMetrics.METRICS,
    "Groups": GroupMetrics.METRICS,
    "Transactions": TransactionMetrics.METRICS,
    "Clients under quotas": QuotaMetrics.METRICS,
    "What clients tell about themselves": TelemetryMetrics.METRICS,
    "The process": ProcessMetrics.METRICS,
}

SUFFIXES = {Kind.COUNTER: "_total", Kind.INFO: "_info"}

INTRO = """\
# Metrics

This page is made from `broker/metrics/` by `make docs`; change that, not this.

They are served at `/metrics` of an HTTP listener ([observability.md](observability.md)), as Prometheus text, or as
OpenMetrics to who accepts that. Names that begin with `kafka_` are those that Kafka's metrics have behind the usual JMX
exporter, in lower case and with Prometheus' units (seconds); lag has the names of the usual lag exporters. Names that
begin with `tidemark_` are our own.

With `tidemark.metrics.detail=topic` what is told by partition is told by topic, as a sum (of lag in seconds, the
longest), and offsets are left out; with `broker` there is one figure for all topics.
"""


def page() -> str:
    return "\n".join([INTRO, *(line for name, metrics in SECTIONS.items() for line in _section(name, metrics)), ""])


def _section(name: str, metrics: tuple[Metric, ...]) -> Iterator[str]:
    yield f"## {name}\n"
    yield "| metric | kind | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for metric in metrics:
        shown = metric.name + SUFFIXES.get(metric.kind, "")
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        yield f"| `{shown}` | {metric.kind.value} | {labels} | {metric.help} |"
    yield ""


if __name__ == "__main__":
    print(page(), end="")
