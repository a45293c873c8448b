"""Steps in Python, and where their mistakes are."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline import causes
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.python_steps import function_of
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.sinks.upsert import settings_of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
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


BY_NUMBER = """\
from pathlib import Path

HERE = Path(__file__).parent


def save(rows, batch):
    if not (HERE / f"batch-{batch}").exists():  # exactly once, by the batch's number
        (HERE / f"batch-{batch}").write_text(",".join(sorted(str(row.a) for row in rows.collect())))
    if (HERE / "slow").exists():
        rows.sparkSession.sql("SELECT java_method('java.lang.Thread', 'sleep', 60000L)").collect()
"""


def test_a_batch_that_a_function_has_seen_comes_again_with_the_same_rows(trial: Trial, spark: SparkSession) -> None:
    """Stopped in the middle, and more records came meanwhile: under the old number they would be taken for written."""
    beside = trial.file.parent
    (beside / "own_sinks.py").write_text(BY_NUMBER)
    (beside / "slow").touch()
    sink = "sinks={own: {type: python, from: things, python: 'own_sinks:save', trigger: 50ms}}"
    described = ["sources.things.schema={a: LONG}", sink]
    trial.produce(b'{"a": 1}', b'{"a": 2}')
    runner = Runner(spark, trial.pipeline(*described), once=False, out=trial.said)

    def stop_at_once() -> None:
        while not (beside / "batch-0").exists():
            time.sleep(0.02)
        runner.stop_soon()
        runner.stop_soon()

    stopping = threading.Thread(target=stop_at_once, daemon=True)
    stopping.start()
    runner.run()
    stopping.join()
    (beside / "slow").unlink()
    trial.produce(b'{"a": 3}')
    trial.run(*described)
    assert [each.read_text() for each in sorted(beside.glob("batch-*"))] == ["1,2", "3"]
    assert "was further than this checkpoint goes" not in trial.said.getvalue()

    # After a restore, only the group tells that a number stands for other records now.
    shutil.copytree(trial.checkpoint, beside / "copy")
    trial.produce(b'{"a": 4}')
    trial.run(*described)
    shutil.rmtree(trial.checkpoint)
    (beside / "copy").rename(trial.checkpoint)
    trial.run(*described)
    told = f"The group pipeline-{trial.name} was further than this checkpoint goes: {trial.name}-0 at 4, not 3."
    assert told in trial.said.getvalue()


STATEFUL = """\
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Counting(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getValueState("seen", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        before = self._seen.get()[0] if self._seen.exists() else 0
        now = before + sum(1 for _ in rows)
        self._seen.update((now,))
        yield Row(a=key[0], n=now)

    def close(self):
        pass


def counted(rows):
    return rows.groupBy("a").transformWithState(Counting(), "a LONG, n LONG", "Update", "None")
"""


def test_state_of_ones_own_is_kept_from_run_to_run(
    trial: Trial, spark: SparkSession, committed: Callable[[str], list[GeneratedRecord]]
) -> None:
    (trial.file.parent / "own_state.py").write_text(STATEFUL)
    step = json.dumps([{"name": "s", "from": "things", "python": "own_state:counted"}])
    described = ["sources.things.schema={a: LONG}", f"steps={step}", "sinks.out.from=s", "sinks.out.mode=update"]
    with settings_of_session(spark, {PROVIDER: ROCKSDB}):
        trial.produce(b'{"a": 1}', b'{"a": 1}')
        trial.run(*described)
        trial.produce(b'{"a": 1}')
        trial.run(*described)
    assert [each.value for each in committed(f"{trial.name}-out")] == [b'{"a":1,"n":2}', b'{"a":1,"n":3}']


TIMES = """\
from pyspark.sql import functions as f


def times(number):
    return number * {factor}


def applied(rows):
    return rows.withColumn("a", f.udf(times, "long")("a"))
"""


@pytest.mark.parametrize("file", ["same_name.py", "same_name/__init__.py"])
def test_modules_of_one_name_beside_two_pipelines_are_two(
    trial: Trial, tmp_path: Path, committed: Callable[[str], list[GeneratedRecord]], file: str
) -> None:
    """In one session, as when cases of several pipelines are tested."""
    step = json.dumps([{"name": "s", "from": "things", "python": "same_name:applied"}])
    described = ["sources.things.schema={a: LONG}", f"steps={step}", "sinks.out.from=s"]
    for place, factor in (("one", 2), ("two", 3), ("one", 2)):
        module = tmp_path / place / file
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(TIMES.format(factor=factor))
        trial.file = tmp_path / place / "trial.yaml"
        trial.file.write_text((tmp_path / "trial.yaml").read_text())
        trial.produce(b'{"a": 1}')
        trial.run(*described)
    assert [each.value for each in committed(f"{trial.name}-out")] == [b'{"a":%d}' % n for n in (2, 3, 2)]


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
