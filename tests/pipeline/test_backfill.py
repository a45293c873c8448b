"""A source that begins in the lake and goes on live: every record once, from whichever of the two has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.backfill import ToTheEnd, list_lakes
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.source.lake import Lake, read_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial

Committed = Callable[[str], list[GeneratedRecord]]
ARCHIVED = (
    "SELECT _topic AS topic, _partition AS partition, _offset AS offset, _timestamp AS timestamp, _key AS key, "
    "_value AS value, _headers AS headers FROM things"
)


def numbers(first: int, end: int) -> list[bytes]:
    return [b'{"a":%d}' % number for number in range(first, end)]


def test_a_pipeline_goes_from_the_lake_to_the_topic_without_gap_or_overlap(
    trial: Trial, spark: SparkSession, committed: Committed
) -> None:
    place, iceberg = trial.checkpoint.parent, f"lake.db.a{trial.name[-8:]}"
    tables = {"parquet": f"{place}/parquet", "delta": f"{place}/delta", "iceberg": iceberg}
    steps = json.dumps([{"name": "archived", "sql": ARCHIVED}])
    sinks = {
        kind: {"type": kind, "from": "archived", "path": path, "trigger": "1 second"} for kind, path in tables.items()
    }
    archive = [f"checkpoint={place}/archive", "sources.things.format=binary", f"steps={steps}"]
    trial.produce(*numbers(0, 6), key=b"k")
    trial.run(*archive, f"sinks={json.dumps(sinks)}")
    trial.delete_before(4)  # the lake has 0 to 5, the topic 4 and later
    trial.produce(*numbers(6, 9), key=b"k")

    def described(kind: str) -> list[str]:
        return [
            f"name=back-{trial.name[-8:]}",
            f"checkpoint={place}/back",
            f"sources.things.backfill={{type: {kind}, path: {tables[kind]}}}",
            "sources.things.schema={a: LONG}",
            "sources.things.batch_records_max=5",  # the lake's part ends within the first batch
            f"sinks={{out: {{from: things, topic: {trial.name}-out}}}}",
        ]

    runner = trial.run(*described("delta"))
    assert [each.value for each in committed(f"{trial.name}-out")] == numbers(0, 9)
    assert runner.metrics.lag == {"out": 0}
    trial.produce(b'{"a":9}', key=b"k")  # live
    trial.run(*described("delta"))
    assert [each.value for each in committed(f"{trial.name}-out")] == numbers(0, 10)

    for kind in tables:  # what the reader is given to read, whatever the table's format
        pipeline = trial.pipeline(*described(kind))
        lake = Lake(list_lakes(spark, pipeline, Checkpoint(pipeline.checkpoint))["things"])
        [part] = lake.parts({(trial.name, 0): (1, 4)})
        found = [value for batch in read_part(part, with_headers=True) for value in batch["value"].to_pylist()]
        assert sorted(found) == numbers(1, 4), kind

    trial.delete_before(7)  # now neither has 6
    lost = [
        f"name=lost-{trial.name[-8:]}",
        f"checkpoint={place}/lost",
        f"sources.things.backfill={{type: parquet, path: {tables['parquet']}}}",
        "sources.things.schema={a: LONG}",
        f"sinks={{out: {{from: things, topic: {trial.name}-lost}}}}",
    ]
    with pytest.raises(CommandFailed, match=r"offsets 6 to 6 are gone"):
        trial.run(*lost)
    assert committed(f"{trial.name}-lost") == []


def test_a_run_that_stands_still_does_not_begin_again_for_ever() -> None:
    to_the_end = ToTheEnd({("t", 0): 10})
    assert to_the_end.is_ahead("out", {})
    assert not to_the_end.is_ahead("out", {})
    assert to_the_end.is_ahead("out", {("t", 0): 5})
    assert not to_the_end.is_ahead("out", {("t", 0): 10})
