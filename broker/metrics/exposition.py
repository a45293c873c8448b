"""The text that Prometheus reads, in both of its forms, written in slices.

prometheus_client writes all at once, and wants an object for every sample. Here what is written is a generator, so that
others have their turn, and the labels of a partition are put together once for all its metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import accumulate, islice
from typing import Any, Final

from tidemark.broker.core.histogram import BOUNDS, Histogram
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metrics.metric import Kind, Metric

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SAMPLES_PER_STEP: Final = 50  # between two looks at the clock
HISTOGRAMS_PER_STEP: Final = 3  # each of them is as many lines as it has bounds

Value = int | float
Labels = str  # `topic="orders",partition="0"`, as it stands between the braces
Sample = tuple[Labels, Value | Histogram | tuple[float, int]]  # of a summary: seconds and count
Samples = Collection[Sample]  # or a view of a table: so many tuples at once would keep the garbage collector busy
Collected = Job[list[tuple[Metric, Samples]]]

_LE: Final = (*(f'le="{bound}"' for bound in BOUNDS), 'le="+Inf"')


def escaped(text: str) -> str:
    """A label's value. Names of groups and clients are any text."""
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def labels(**values: object) -> Labels:
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in values.items())


class Exposition:
    """Text or OpenMetrics: they differ in the names of counters, and in the end."""

    def __init__(self, *, open_metrics: bool) -> None:
        self.is_open_metrics = open_metrics
        self.content_type = OPEN_METRICS if open_metrics else TEXT
        self._parts: list[bytes] = []

    def write(self, metric: Metric, samples: Samples) -> Job[None]:
        if not samples:
            return
        self._put(_head(metric, open_metrics=self.is_open_metrics))
        line = _LINES[metric.kind]
        left = iter(samples)
        at_once = HISTOGRAMS_PER_STEP if metric.kind is Kind.HISTOGRAM else SAMPLES_PER_STEP
        while text := "".join(line(metric.name, *each) for each in islice(left, at_once)):
            self._put(text)
            yield

    def _put(self, text: str) -> None:
        self._parts.append(text.encode(errors="replace"))

    def finish(self) -> bytes:
        if self.is_open_metrics:
            self._put("# EOF\n")
        return b"".join(self._parts)


def _head(metric: Metric, *, open_metrics: bool) -> str:
    is_total = metric.kind is Kind.COUNTER and not open_metrics
    kind = metric.kind.value if open_metrics or metric.kind is not Kind.INFO else Kind.GAUGE.value
    is_info = metric.kind is Kind.INFO and not open_metrics
    name = f"{metric.name}{'_total' if is_total else '_info' if is_info else ''}"
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n"


def _plain(name: str, braces: Labels, value: Value) -> str:
    return f"{name}{{{braces}}} {value}\n" if braces else f"{name} {value}\n"


def _counter(name: str, braces: Labels, value: Value) -> str:
    return _plain(f"{name}_total", braces, value)


def _info(name: str, braces: Labels, value: Value) -> str:
    return _plain(f"{name}_info", braces, value)


def _summary(name: str, braces: Labels, value: tuple[float, int]) -> str:
    seconds, count = value
    return _plain(f"{name}_sum", braces, seconds) + _plain(f"{name}_count", braces, count)


def _histogram(name: str, braces: Labels, value: Histogram) -> str:
    return "".join(_histogram_lines(name, braces, value))


def _histogram_lines(name: str, braces: Labels, value: Histogram) -> Iterator[str]:
    before = f"{braces}," if braces else ""
    count = 0
    for bound, count in zip(_LE, accumulate(value.counts), strict=True):
        yield f"{name}_bucket{{{before}{bound}}} {count}\n"
    yield _plain(f"{name}_sum", braces, value.seconds)
    yield _plain(f"{name}_count", braces, count)


_LINES: Final[dict[Kind, Callable[[str, Labels, Any], str]]] = {
    Kind.COUNTER: _counter,
    Kind.GAUGE: _plain,
    Kind.HISTOGRAM: _histogram,
    Kind.SUMMARY: _summary,
    Kind.INFO: _info,
}
