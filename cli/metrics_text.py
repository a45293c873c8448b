"""Prometheus' text, read: what `/metrics` of a node says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")

Labels = tuple[tuple[str, str], ...]
Samples = dict[Labels, float]


class Scrape:
    def __init__(self, text: str, *, at: float) -> None:
        self.at = at
        self._families: dict[str, Samples] = {}
        for line in text.splitlines():
            if (match := _SAMPLE.match(line)) is not None:
                name, braces, value = match.groups()
                self._families.setdefault(name, {})[_labels(braces or "")] = float(value)

    def samples(self, name: str) -> Samples:
        return self._families.get(name, {})

    def total(self, name: str) -> float:
        return sum(self.samples(name).values())

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Summed by some labels."""
        found: dict[tuple[str, ...], float] = {}
        for named, value in self.samples(name).items():
            values = dict(named)
            key = tuple(values.get(label, "") for label in labels)
            found[key] = found.get(key, 0.0) + value
        return found


def _labels(braces: str) -> Labels:
    return tuple((name, _ESCAPED.sub(_unescaped, value)) for name, value in _LABEL.findall(braces))


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def rates(before: Scrape, after: Scrape, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Per second. A counter that went back began anew."""
    earlier = before.by(name, *labels)
    seconds = max(after.at - before.at, 0.001)
    return {
        key: (value - earlier.get(key, 0.0) if value >= earlier.get(key, 0.0) else value) / seconds
        for key, value in after.by(name, *labels).items()
    }


def quantiles(
    before: Scrape, after: Scrape, name: str, labels: tuple[str, ...], wanted: tuple[float, ...]
) -> Mapping[tuple[str, ...], list[float | None]]:
    """Of a histogram's observations between two scrapes, by labels, in seconds: the bound that a share is below."""
    counts: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for (*key, bound), rate in rates(before, after, f"{name}_bucket", *labels, "le").items():
        counts.setdefault(tuple(key), []).append((float(bound), rate))
    return {key: list(_quantiles(sorted(buckets), wanted)) for key, buckets in counts.items()}


def _quantiles(buckets: list[tuple[float, float]], wanted: tuple[float, ...]) -> Iterator[float | None]:
    total = buckets[-1][1]
    for share in wanted:
        found = None
        low_bound = low_count = 0.0
        for bound, count in buckets:
            if total and count >= share * total:
                inside = (share * total - low_count) / (count - low_count) if count > low_count else 1.0
                found = low_bound if bound == float("inf") else low_bound + (bound - low_bound) * inside
                break
            low_bound, low_count = bound, count
        yield found
