"""Cases on a real broker and a real Spark: those that ship pass, and what is wrong is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.spec import load
from tidemark.pipeline.testing import command
from tidemark.pipeline.testing.bench import Bench
from tidemark.pipeline.testing.cases import cases_beside, given_record, read_cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial


def own_topics(cluster: ClusterAdmin) -> set[str]:
    return {name for name in cluster.topics() if not name.startswith("__")}


@pytest.mark.parametrize("name", ["orders", "quality"])
def test_the_cases_that_ship_pass(spark: SparkSession, shipped: Path, name: str) -> None:
    pipeline = load(shipped / f"{name}.yaml")
    bench = Bench(spark)
    for case in read_cases(cases_beside(pipeline.file)):
        outcome = bench.run_case(pipeline, case)
        assert outcome.passed, outcome.text()


def test_a_case_that_fails_says_which_field_of_which_sink(spark: SparkSession, trial: Trial, tmp_path: Path) -> None:
    cases = tmp_path / "trial.cases.yaml"
    cases.write_text(
        "cases:\n"
        "- name: doubled\n  given: {things: [{a: 1}]}\n  expect: {out: [{a: 2}]}\n"
        "- name: stops\n  given: {things: ['{broken']}\n  fails: nothing like it\n"
        "- name: no such sink\n  expect: {nowhere: []}\n"
    )
    bench = Bench(spark)
    outcomes = [bench.run_case(trial.pipeline("sources.things.schema={a: LONG}"), each) for each in read_cases(cases)]
    told = [outcome.text() for outcome in outcomes]
    assert not any(outcome.passed for outcome in outcomes)
    assert "a: expected 2, got 1" in told[0]
    assert "should have failed with 'nothing like it', but did not" in told[1]
    assert "There is no sink 'nowhere'" in told[2]


def test_a_dry_run_reads_the_real_topics_and_writes_nothing_to_them(
    spark: SparkSession,
    trial: Trial,
    cluster: ClusterAdmin,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial.produce(*(b'{"a": %d}' % number for number in range(5)))
    monkeypatch.setattr(command, "start_spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    pipeline = trial.pipeline("sources.things.schema={a: LONG}")
    before = own_topics(cluster)
    recorded = tmp_path / "trial.cases.yaml"
    assert command.dry_run(pipeline, count=2, record=recorded) == 0
    assert 'out: 2 rows\n  {"key": null, "value": {"a": 3}}' in capsys.readouterr().out
    assert own_topics(cluster) == before
    assert not trial.checkpoint.exists()
    [case] = read_cases(recorded)
    [record, _] = case.given[trial.name]
    assert (record.value, record.partition) == (given_record({"a": 3}).value, 0)
    assert Bench(spark).run_case(pipeline, case).passed
