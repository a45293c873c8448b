"""Requests by API: how many, how long in each phase, which errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.broker.core.histogram import Histogram
from tidemark.broker.core.loop_delay import LoopDelay
from tidemark.broker.metrics.exposition import Collected, Samples, labels
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.broker.server.timed_answer import ApiTimes
from tidemark.protocol.errors import ErrorCode

_PREFIX: Final = "kafka_network_requestmetrics"
REQUESTS: Final = Metric(
    name=f"{_PREFIX}_requests", kind=Kind.COUNTER, labels=("request",), help="Requests that were answered, by API."
)
TOTAL: Final = Metric(
    name=f"{_PREFIX}_totaltime_seconds",
    kind=Kind.HISTOGRAM,
    labels=("request",),
    help="From a request's last byte to its answer. Of a busy API one in 17, or 61, is measured and stands for"
    " the others.",
)
LOCAL: Final = Metric(
    name=f"{_PREFIX}_localtime_seconds",
    kind=Kind.HISTOGRAM,
    labels=("request",),
    help="Of it, the time that the broker worked at it.",
)
REMOTE: Final = Metric(
    name=f"{_PREFIX}_remotetime_seconds",
    kind=Kind.HISTOGRAM,
    labels=("request",),
    help="Of it, the time that it waited: for replicas, records, other members, or the disk.",
)
QUEUE: Final = Metric(
    name=f"{_PREFIX}_requestqueuetime_seconds",
    kind=Kind.HISTOGRAM,
    labels=("request",),
    help="Before it: how long a request was at hand while others were served. How long the event loop takes to notice"
    " one is tidemark_event_loop_delay_seconds.",
)
DELAY: Final = Metric(
    name="tidemark_event_loop_delay_seconds",
    kind=Kind.HISTOGRAM,
    help="How late the event loop is: how long whatever arrives has to wait for it, looked at four times a second.",
)
SEND: Final = Metric(
    name=f"{_PREFIX}_responsesendtime_seconds",
    kind=Kind.HISTOGRAM,
    labels=("request",),
    help="After it: how long it took until the answer was sent, because the client did not take it or the disk had to"
    " bring it. 0 for an answer that the socket took at once.",
)
ERRORS: Final = Metric(
    name=f"{_PREFIX}_errors",
    kind=Kind.COUNTER,
    labels=("request", "error"),
    help="Errors in answers, by API and Kafka's name of the error. One answer may hold several.",
)
LATE: Final = Metric(
    name="tidemark_event_loop_late",
    kind=Kind.COUNTER,
    help="How often the event loop was found to be more than 100 ms late.",
)
LONGEST: Final = Metric(
    name="tidemark_event_loop_delay_max_seconds",
    kind=Kind.GAUGE,
    help="The longest that the event loop was late since the start.",
)


class RequestMetrics:
    METRICS: Final = (REQUESTS, TOTAL, QUEUE, LOCAL, REMOTE, SEND, ERRORS, DELAY, LATE, LONGEST)

    def __init__(
        self, times: Mapping[int, ApiTimes], loop_delay: LoopDelay, slow_sends: Mapping[str, Histogram]
    ) -> None:
        """`slow_sends`: by API, of answers that were not sent at once."""
        self._slow_sends = slow_sends
        self._times = times
        self._loop_delay = loop_delay

    def collect(self) -> Collected:
        named = [(labels(request=times.name), times) for times in list(self._times.values())]
        yield
        errors = [
            (labels(request=times.name, error=_name(code)), count)
            for _, times in named
            for code, count in sorted(times.errors.items())
        ]
        delay = self._loop_delay
        return [
            (REQUESTS, [(name, times.total.count) for name, times in named]),
            (TOTAL, _of(named, "total")),
            (LOCAL, _of(named, "local")),
            (REMOTE, _of(named, "remote")),
            (QUEUE, _of(named, "queue")),
            (SEND, [(name, _sends(times, self._slow_sends.get(times.name))) for name, times in named]),
            (ERRORS, errors),
            (DELAY, [("", delay.delays)]),
            (LATE, [("", delay.late_count)]),
            (LONGEST, [("", delay.longest_seconds)]),
        ]


def _of(named: list[tuple[str, ApiTimes]], phase: str) -> Samples:
    found: list[tuple[str, Histogram]] = [(name, getattr(times, phase)) for name, times in named]
    return found


def _sends(times: ApiTimes, slow: Histogram | None) -> Histogram:
    """Of all answers: those that nothing was noted of were sent at once."""
    sends = Histogram()
    if slow is not None:
        sends.counts, sends.seconds = list(slow.counts), slow.seconds
    sends.counts[0] += max(times.total.count - sends.count, 0)
    return sends


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
