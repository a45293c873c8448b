"""One metric, declared once: from these come what is served at /metrics and docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    COUNTER = "counter"  # its samples end in _total
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"  # only _sum and _count
    INFO = "info"  # a gauge that is always 1: what it tells is in its labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str  # without _total
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
