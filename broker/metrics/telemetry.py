"""What clients pushed (KIP-714), under names of their own, and how the pushing goes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metrics.exposition import Collected, Sample, labels
from tidemark.broker.metrics.metric import Kind, Metric
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:  # loaded with the first client that asks
    from tidemark.broker.telemetry.service import Instance, Telemetry

_PREFIX: Final = "kafka_server_client_metrics"
_PUSHED: Final = "kafka_client_"
_KAFKA: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")
NAMES_MAX: Final = 1_000
STEP: Final = 50

INSTANCES: Final = Metric(
    name=f"{_PREFIX}_instance_count", kind=Kind.GAUGE, help="Clients that this node knows from their telemetry."
)
PUSHES: Final = Metric(name=f"{_PREFIX}_push", kind=Kind.COUNTER, help="Pushes of metrics by clients that were taken.")
REFUSED: Final = Metric(
    name=f"{_PREFIX}_refused", kind=Kind.COUNTER, labels=("error",), help="Requests about telemetry that were refused."
)
PUSHED: Final = Metric(
    name="kafka_client_…",
    kind=Kind.GAUGE,
    labels=("client_id", "client_instance_id", "client_software_name", "…"),
    help="What clients pushed of themselves: org.apache.kafka.producer.record.queue.time.avg is"
    " kafka_client_producer_record_queue_time_avg.",
)


class TelemetryMetrics:
    METRICS: Final = (INSTANCES, PUSHES, REFUSED, PUSHED)

    def __init__(self, telemetry: Callable[[], Telemetry | None]) -> None:
        """`telemetry`: None while no client has asked."""
        self._telemetry = telemetry

    def collect(self) -> Collected:
        telemetry = self._telemetry()
        found: dict[str, list[Sample]] = {}
        instances = () if telemetry is None else telemetry.told()
        for instance in instances:
            yield
            if instance.series:
                yield from _look_at(instance, found)
        refusals = {} if telemetry is None else telemetry.refusals
        return [
            (INSTANCES, [("", 0 if telemetry is None else telemetry.instance_count)]),
            (PUSHES, [("", 0 if telemetry is None else telemetry.pushes)]),
            (REFUSED, [(labels(error=ErrorCode(code).name), count) for code, count in sorted(refusals.items())]),
            *((_metric(name), samples) for name, samples in found.items()),
        ]


def _look_at(instance: Instance, found: dict[str, list[Sample]]) -> Job[None]:
    client = instance.client
    known = {
        "client_id": client.client_id,
        "client_instance_id": client.client_instance_id,
        "client_software_name": client.client_software_name,
    }
    told: set[tuple[str, str]] = set()
    for number, ((pushed, attributes), value) in enumerate(list(instance.series.items())):
        name = name_of(pushed)
        if name not in found and len(found) >= NAMES_MAX:
            continue
        more = {label: text for key, text in attributes if (label := _label(key)) not in known}
        sample = labels(**known, **more)
        if (name, sample) not in told:  # two names that differ in signs only
            told.add((name, sample))
            found.setdefault(name, []).append((sample, value))
        if not number % STEP:
            yield


def name_of(pushed: str) -> str:
    return _PUSHED + _NOT_IN_NAMES.sub("_", pushed.removeprefix(_KAFKA)).strip("_").lower()


def _label(key: str) -> str:
    name = _NOT_IN_NAMES.sub("_", key).lstrip("_") or "attribute"
    return f"a_{name}" if name[0].isdigit() else name


def _metric(name: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, help="Pushed by clients.")
