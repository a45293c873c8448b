"""Steps in Python, and where their mistakes are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline import causes
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.python_steps import function_of

if TYPE_CHECKING:
    from tests.pipeline.conftest import Trial

CODE = """\
from pyspark.sql import functions as f


def doubled(rows):
    @f.udf("long")
    def twice(number):
        return number * 2 // (1 if number != 13 else 0)

    return rows.withColumn("a", twice("a"))


def wrong(rows):
    return rows.select("nothing")


def nothing(rows):
    return None


def save(rows, batch):
    from pathlib import Path

    with (Path(__file__).parent / "saved.txt").open("a") as file:
        file.write(f"{batch}: {sorted(row.a for row in rows.collect())}\\n")
    if any(row.a == 99 for row in rows.collect()):
        raise ValueError("not this one")
"""


def declared(function: str) -> tuple[str, ...]:
    step = json.dumps([{"name": "s", "from": "things", "python": f"own_steps:{function}"}])
    return "sources.things.schema={a: LONG}", f"steps={step}", "sinks.out.from=s"


def test_a_function_of_a_file_beside_the_pipeline_makes_rows(
    trial: Trial, committed: Callable[[str], list[GeneratedRecord]]
) -> None:
    (trial.file.parent / "own_steps.py").write_text(CODE)
    trial.produce(b'{"a": 1}', b'{"a": 21}')
    trial.run(*declared("doubled"))
    assert [json.loads(each.value or b"")["a"] for each in committed(f"{trial.name}-out")] == [2, 42]
    saving = (declared("doubled")[0], "sinks={own: {type: python, from: things, python: 'own_steps:save'}}")
    elsewhere = f"checkpoint={trial.checkpoint}-own"
    trial.run(*saving, elsewhere)
    assert (trial.file.parent / "saved.txt").read_text() == "0: [1, 21]\n"
    with pytest.raises(CommandFailed, match=r"The step 's': own_steps\.py, line 13: AnalysisException: \[UNRESOLVED"):
        trial.run(*declared("wrong"))
    with pytest.raises(CommandFailed, match=r"The step 's': its function returned NoneType, not a DataFrame"):
        trial.run(*declared("nothing"))
    trial.produce(b'{"a": 13}')
    with pytest.raises(CommandFailed, match=r"own_steps\.py, line 7: ZeroDivisionError"):
        trial.run(*declared("doubled"))
    trial.produce(b'{"a": 99}')
    with pytest.raises(CommandFailed, match=r"own_steps\.py, line 26: ValueError: not this one"):
        trial.run(*saving, elsewhere)


@pytest.mark.parametrize(
    ("named", "code", "told"),
    [
        ("gone:f", None, "The step 's': there is no gone.py beside the pipeline."),
        ("here:f", "x = 1\n", "The step 's': here has no function 'f'."),
        ("here:f", "\nimport not_there_at_all\n", "here.py, line 2: ModuleNotFoundError: No module named"),
        ("here:f", "def f(:\n", "here.py, line 1: SyntaxError"),
    ],
)
def test_mistakes_are_told_by_file_and_line(tmp_path: Path, named: str, code: str | None, told: str) -> None:
    if code is not None:
        (tmp_path / "here.py").write_text(code)
    with pytest.raises(CommandFailed) as refused:
        function_of(named, step="s", beside=tmp_path)
    assert told in str(refused.value)


def test_our_own_lines_are_not_taken_for_the_users() -> None:
    trace = (
        '  File "/x/site-packages/pyspark/worker.py", line 1, in main\n'
        '  File "/home/u/clean.py", line 12, in f\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 3, in decode\n'
        "ValueError: bad number\n"
    )
    assert causes.sentence(trace) == "clean.py, line 12: ValueError: bad number."
