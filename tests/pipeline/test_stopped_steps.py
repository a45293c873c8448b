"""A batch of one read for several sinks ends after one of its steps, then after another, and its table changes between:
no row is lost, in two sinks that a rule divides rows between, or twice in a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.pinned_tables import PinnedTables
from tidemark.pipeline.shared_batches import SharedBatches
from tidemark.pipeline.sinks.table_batches import TableBatches
from tidemark.pipeline.sinks.topic import TopicBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Produce, Trial

EACH_TIME = 20


class Stopped(Exception):
    """Stands for the end of the driver: what is on the broker and on the disk stays as it is."""


class Steps:
    """Counts what a batch has done, and ends it after as much as is wanted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after: str | None = None
        monkeypatch.setattr(SharedBatches, "__call__", self._around(SharedBatches.__call__, "planned", "written"))
        monkeypatch.setattr(PinnedTables, "rows", self._around(PinnedTables.rows, "", "pinned"))
        for kind in (TopicBatches, TableBatches):
            monkeypatch.setattr(kind, "__call__", self._around(kind.__call__, "", "sink"))
        self._sinks = 0

    def _around(self, real: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._reach(before)
            result = real(*arguments)
            self._reach(after)
            return result

        return call

    def _reach(self, step: str) -> None:
        self._sinks = 0 if step == "planned" else self._sinks + (step == "sink")
        if step and self.after in (step, f"{step} {self._sinks}"):
            raise Stopped(step)


def described(trial: Trial, names: str) -> list[str]:
    place = trial.checkpoint.parent
    sources = {
        "things": {"topic": f"{trial.name}-in", "format": "json", "schema": {"n": "LONG"}},
        "names": {"type": "table", "topic": names, "format": "json", "schema": {"name": "STRING"}},
    }
    keyed = "SELECT CAST(CAST(_key AS STRING) AS LONG) AS k, name FROM names"
    joined = f"SELECT n, name, _topic, _partition, _offset FROM things LEFT JOIN ({keyed}) ON n % 10 = k"
    steps = [
        {"name": "checked", "sql": joined, "rules": {"good": "name = 'good'"}},
        {"name": "plain", "sql": "SELECT n, name FROM checked"},
    ]
    sinks: dict[str, dict[str, Any]] = {
        "good": {"from": "checked", "topic": f"{trial.name}-good", "key": "n", "writers": 2},
        "iceberg": {"type": "iceberg", "from": "plain", "path": f"lake.db.p{trial.name[-8:]}"},
        "bad": {"from": "checked_rejected", "topic": f"{trial.name}-bad", "key": "n"},
        "delta": {"type": "delta", "from": "plain", "path": f"{place}/delta"},
    }
    one_pace = {name: {**each, "trigger": "1 second"} for name, each in sinks.items()}
    return [f"sources={json.dumps(sources)}", f"steps={json.dumps(steps)}", f"sinks={json.dumps(one_pace)}"]


def test_a_batch_that_ends_at_any_step_is_finished_as_it_was_begun(
    trial: Trial,
    spark: SparkSession,
    produce: Produce,
    committed: Callable[[str], list[GeneratedRecord]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, names = Steps(monkeypatch), f"{trial.name}-names"
    trial.create_topic(names)
    trial.create_topic(f"{trial.name}-in", partitions=4)
    overrides = described(trial, names)
    made = 0
    for turn, stop in enumerate(["pinned", "sink 1", "sink 3", None]):
        for key in range(10):  # what was good is bad, and what was bad is good
            value = b'{"name": "good"}' if (key + turn) % 2 else b'{"name": "bad"}'
            trial.produce_to(names, value, key=b"%d" % key)
        new = range(made, made := made + EACH_TIME)
        produce(GeneratedRecord(topic=f"{trial.name}-in", key=b"%d" % n, value=b'{"n": %d}' % n) for n in new)
        steps.after = stop
        with nullcontext() if stop is None else pytest.raises(CommandFailed, match="Stopped"):
            trial.run(*overrides)

    good, bad = (
        Counter(json.loads(each.value or b"")["n"] for each in committed(f"{trial.name}-{sink}"))
        for sink in ("good", "bad")
    )
    assert good + bad == Counter(range(made))
    assert min(len(good), len(bad)) > 0
    place = trial.checkpoint.parent
    tables = {
        "iceberg": spark.table(f"lake.db.p{trial.name[-8:]}"),
        "delta": spark.read.format("delta").load(f"{place}/delta"),
    }
    for name, table in tables.items():
        assert Counter(row.n for row in table.select("n").collect()) == good, name
