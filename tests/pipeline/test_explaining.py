"""`validate` and `explain`: through Spark's analysis, without running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidemark.pipeline.commands import main

if TYPE_CHECKING:
    from tests.pipeline.conftest import Trial

STEP = "steps=[{name: s, sql: SELECT a + 1 AS b FROM things}]"


def arguments(trial: Trial, command: str, *overrides: str) -> list[str]:
    schema = "sources.things.schema={a: LONG}"
    sets = [word for each in (*trial.overrides, schema, *overrides) for word in ("--set", each)]
    return [command, str(trial.file), *sets]


def test_a_good_pipeline_is_said_to_be_good(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(trial, "validate", STEP, "sinks.out.from=s", "sinks.out.key=b")) == 0
    assert capsys.readouterr().out == f"{trial.file}: no mistakes found.\n"
    assert not trial.checkpoint.exists()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([STEP.replace("a +", "z +"), "sinks.out.from=s"], "The step 's': [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ([STEP.replace("SELECT", "SELEKT"), "sinks.out.from=s"], "The step 's': [PARSE_SYNTAX_ERROR]"),
        (["sinks.out.key=z"], "sinks.out: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        (["sources.things.schema={a: LNG}"], "sources.things.schema: "),
        (["sinks.lake={type: parquet, from: things, path: x, partition_by: [z]}"], "sinks.lake.partition_by: "),
        (
            ["steps=[{name: s, from: things, watermark: {column: a, delay: 1 minute}}]", "sinks.out.from=s"],
            "The step 's': [EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE]",
        ),
    ],
)
def test_a_mistake_in_sql_is_one_sentence_that_says_where(
    trial: Trial, capsys: pytest.CaptureFixture[str], overrides: list[str], told: str
) -> None:
    assert main(arguments(trial, "validate", *overrides)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tidemark: {told}")


def test_explain_shows_a_plan_for_each_sink(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [STEP, "sinks.out.from=s", "sinks.lake={type: parquet, from: things, path: x}"]
    assert main(arguments(trial, "explain", *overrides)) == 0
    shown = capsys.readouterr().out
    assert "== out ==" in shown
    assert "== lake ==" in shown
    assert shown.count("== Physical Plan ==") == 2
