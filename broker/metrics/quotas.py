"""What clients use, and how long they were told to wait for it.

Counted while there is a quota on clients, or while somebody watches (`tidemark quotas top`): without one, nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tidemark.broker.metrics.exposition import Collected, Samples, labels
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.broker.quotas.meter import Usage

LABEL_CHARS_MAX: Final = 128  # of a client id, which its client chooses; clients that differ only further on are one
_LABELS: Final = ("user", "client_id")
_WHEN: Final = "Only while there is a quota on clients."
PRODUCED: Final = Metric(
    name="tidemark_client_produced_bytes", kind=Kind.COUNTER, labels=_LABELS, help=f"Bytes that it produced. {_WHEN}"
)
FETCHED: Final = Metric(
    name="tidemark_client_fetched_bytes", kind=Kind.COUNTER, labels=_LABELS, help=f"Bytes that it fetched. {_WHEN}"
)
WORKED: Final = Metric(
    name="tidemark_client_request_seconds",
    kind=Kind.COUNTER,
    labels=_LABELS,
    help=f"How long the event loop worked for it, as `request_percentage` counts it. {_WHEN}",
)
THROTTLED: Final = Metric(
    name="tidemark_client_throttled",
    kind=Kind.COUNTER,
    labels=_LABELS,
    help=f"Answers that told it to wait (throttle_time_ms). {_WHEN}",
)
THROTTLE_TIME: Final = Metric(
    name="tidemark_client_throttle_seconds",
    kind=Kind.COUNTER,
    labels=_LABELS,
    help=f"For how long it was told to wait altogether. {_WHEN}",
)


class QuotaMetrics:
    METRICS: Final = (PRODUCED, FETCHED, WORKED, THROTTLED, THROTTLE_TIME)

    def __init__(self, usage: Callable[[], Iterable[Usage]]) -> None:
        self._usage = usage

    def collect(self) -> Collected:
        samples: dict[str, tuple[float, ...]] = {}
        for each in self._usage():
            of_whom = labels(user=each.user, client_id=each.client_id[:LABEL_CHARS_MAX])
            before = samples.get(of_whom, (0,) * len(self.METRICS))
            samples[of_whom] = tuple(map(sum, zip(before, each[2:], strict=True)))
            yield
        names = sorted(samples)
        found: list[tuple[Metric, Samples]] = []
        for index, metric in enumerate(self.METRICS):
            yield
            found.append((metric, [(of_whom, samples[of_whom][index]) for of_whom in names]))
        return found
