"""`tidemark pipeline test`: the cases beside a pipeline, or a dry run on the newest records of its real topics."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.spec import Pipeline
from tidemark.pipeline.testing.bench import Bench, readable
from tidemark.pipeline.testing.cases import Case, Given, as_bytes, cases_beside, read_cases
from tidemark.pipeline.testing.comparing import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
SHOWN_MAX = 20
FOR_CASES = ("registry",)  # whose secrets a case needs: it runs on a broker of its own


def start_spark(pipeline: Pipeline, directory: Path) -> SparkSession:
    from tidemark.pipeline.spark import JAVA_OPTIONS, SHORT_LIVED, session

    settings = {**pipeline.spark, **SHORT_LIVED}
    if own := pipeline.spark.get(JAVA_OPTIONS):
        settings[JAVA_OPTIONS] = f"{SHORT_LIVED[JAVA_OPTIONS]} {own}"
    return session("test", master=MASTER, warehouse=str(directory), settings=settings, log=directory / "spark.log")


def run_cases(pipeline: Pipeline, *, cases: Path | None, only: str | None) -> int:
    file = cases or cases_beside(pipeline.file)
    chosen = [each for each in read_cases(file) if only is None or only in each.name]
    if not chosen:
        raise CommandFailed(f"{file}: no case has {only!r} in its name.", code=ExitCode.NOT_FOUND)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidemark-test-") as directory:
        spark = start_spark(pipeline, Path(directory))
        try:
            failed = _run_all(Bench(spark), pipeline, chosen)
        finally:
            spark.stop()
    print(f"{len(chosen) - failed} passed, {failed} failed in {time.monotonic() - began:.1f} s")
    return ExitCode.OK if not failed else ExitCode.FAILED


def _run_all(bench: Bench, pipeline: Pipeline, cases: Sequence[Case]) -> int:
    failed = 0
    for case in cases:
        outcome = bench.run_case(pipeline, case)
        failed += not outcome.passed
        print(outcome.text(), flush=True)
    return failed


def dry_run(pipeline: Pipeline, *, count: int, record: Path | None) -> int:
    """What the pipeline would make of the newest records. Its topics are read; everything is written elsewhere."""
    from tidemark.pipeline.graph import all_sinks
    from tidemark.pipeline.testing.recent import recent_records

    given = recent_records(pipeline, count=count)
    for topic, records in given.items():
        print(f"{topic}: {len(records)} records", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tidemark-test-") as directory:
        spark = start_spark(pipeline, Path(directory))
        try:
            with Bench(spark).trial(pipeline, sinks=None) as trial:
                failure = trial.run(given)
                if failure is not None:
                    raise CommandFailed(failure)
                names = [each.name for each in all_sinks(trial.pipeline)]
                rows = {name: trial.rows(name, like=[{"key": None, "value": None}]) for name in names}
        finally:
            spark.stop()
    for name, made in rows.items():
        print(f"{name}: {len(made)} rows")
        for row in made[:SHOWN_MAX]:
            print(f"  {shown(row)}")
    if record is not None:
        _record(record, given, rows)
    return ExitCode.OK


def _record(file: Path, given: dict[str, list[Given]], rows: dict[str, Any]) -> None:
    """The dry run as a case: look it through, and it is a test."""
    case = {
        "name": f"recorded {time.strftime('%Y-%m-%d %H:%M:%S')}",
        "given": {topic: [_as_written(each) for each in records] for topic, records in given.items()},
        "expect": rows,
    }
    there = yaml.safe_load(file.read_text()) if file.exists() else {"cases": []}
    there["cases"].append(json.loads(json.dumps(case, default=str)))
    file.write_text(yaml.safe_dump(there, sort_keys=False, allow_unicode=True))
    print(f"recorded in {file}", file=sys.stderr)


def _as_written(record: Given) -> dict[str, Any]:
    value = readable(record.value)
    binary = value if isinstance(value, dict) else None
    parsed = None if record.value is None or binary else readable(record.value, parse=True)
    if as_bytes(parsed) == record.value:  # else it would come back with other blanks, which a text would show
        value = parsed
    written: dict[str, Any] = dict(binary) if binary else {"value": value}
    if record.key is not None:
        written["key"] = readable(record.key)
    if record.headers:
        written["headers"] = {name: readable(each) for name, each in record.headers}
    written["timestamp"], written["partition"] = record.timestamp_ms, record.partition
    return written
