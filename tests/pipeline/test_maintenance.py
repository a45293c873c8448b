"""Tables are seen to without a row lost or doubled, and the pipeline that writes them goes on after it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.commands import main
from tidemark.pipeline.maintenance import NOTE, Schedule, Upkeep, maintain
from tidemark.pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial

DAY_S = 86400.0
FOUR_DAYS_AGO = time.time() - 4 * DAY_S
ALL_AT_ONCE = Upkeep(target_file_bytes=1 << 20, keep_s=0.0, orphans_s=DAY_S)


def stray(directory: Path, *, old: bool) -> Path:
    """A file as a killed batch leaves it."""
    file = directory / f"part-stray-{old}.parquet"
    file.write_bytes(b"PAR1")
    if old:
        os.utime(file, (FOUR_DAYS_AGO, FOUR_DAYS_AGO))
    return file


def test_tables_are_seen_to_and_written_on(trial: Trial, spark: SparkSession) -> None:
    place, iceberg = trial.checkpoint.parent, f"lake.db.m{trial.name[-8:]}"
    sinks: dict[str, dict[str, Any]] = {
        "parquet": {"type": "parquet", "path": f"{place}/parquet"},
        "delta": {"type": "delta", "path": f"{place}/delta"},
        "merged": {"type": "delta", "path": f"{place}/merged", "mode": "upsert", "keys": ["a"]},
        "iceberg": {"type": "iceberg", "path": iceberg},
    }
    written = json.dumps({name: {**each, "from": "plain", "trigger": "1 second"} for name, each in sinks.items()})
    steps = json.dumps([{"name": "plain", "sql": "SELECT a FROM things"}])
    described = ["sources.things.schema={a: LONG}", f"steps={steps}", f"sinks={written}"]

    def rows() -> dict[str, list[int]]:
        tables = {
            "parquet": spark.read.parquet(f"{place}/parquet"),
            "delta": spark.read.format("delta").load(f"{place}/delta"),
            "merged": spark.read.format("delta").load(f"{place}/merged"),
            "iceberg": spark.table(iceberg),
        }
        return {name: sorted(row.a for row in table.collect()) for name, table in tables.items()}

    for number in range(2):
        trial.produce(b'{"a": %d}' % number, b'{"a": 7}')
        trial.run(*described)
    before = rows()
    assert before["delta"] == before["parquet"] == before["iceberg"] == [0, 1, 7, 7]
    assert before["merged"] == [0, 1, 7]
    old, new = stray(place / "parquet", old=True), stray(place / "parquet", old=False)
    snapshots = spark.sql(f"SELECT * FROM {iceberg}.snapshots").count()
    data = Path(spark.sql(f"SELECT file_path FROM {iceberg}.files").collect()[0].file_path).parent
    stray_of_iceberg = stray(data, old=True)

    would = [line for each in sinks.values() for line in maintain(spark, each["path"], _dry(ALL_AT_ONCE))]
    assert "1 files that are not in its log would be removed" in would[0]
    assert rows() == before
    assert old.exists()
    for each in sinks.values():
        maintain(spark, each["path"], ALL_AT_ONCE)
    assert rows() == before
    assert (old.exists(), new.exists(), stray_of_iceberg.exists()) == (False, True, False)
    new.unlink()
    assert len(list((place / "delta").glob("*.parquet"))) == 1  # compacted, and what that replaced is gone
    # The newest snapshot of a query stays: by it a batch that is tried again is known. Those before it are gone.
    assert 0 < spark.sql(f"SELECT * FROM {iceberg}.snapshots").count() < snapshots + 1
    assert spark.sql(f"SELECT summary['tidemark.batch'] FROM {iceberg}.snapshots").first() is not None

    trial.produce(b'{"a": 8}')
    (trial.checkpoint / NOTE).write_text(json.dumps(dict.fromkeys(sinks, 0)))  # last seen to in 1970
    trial.run(*described, "maintenance={every: 1 day, keep: 0s}")  # now by the pipeline itself
    every = [0, 1, 7, 7, 8]
    assert rows() == {"parquet": every, "delta": every, "iceberg": every, "merged": [0, 1, 7, 8]}
    assert "files became" in trial.said.getvalue()
    assert "could not be seen to" not in trial.said.getvalue()
    assert min(json.loads((trial.checkpoint / NOTE).read_text()).values()) > time.time() - DAY_S


def _dry(upkeep: Upkeep) -> Upkeep:
    return Upkeep(target_file_bytes=1, keep_s=upkeep.keep_s, orphans_s=upkeep.orphans_s, dry_run=True)


YAML = """\
name: kept
sources: {{things: {{topic: things}}}}
sinks: {{lake: {{type: parquet, from: things, path: lake}}, out: {{from: things, topic: out}}}}
{more}
"""


def declared(directory: Path, more: str = "") -> Path:
    file = directory / "kept.yaml"
    file.write_text(YAML.format(more=more))
    return file


def test_a_table_is_due_when_its_time_has_passed_whoever_ran_the_pipeline(tmp_path: Path) -> None:
    pipeline = load(declared(tmp_path, "maintenance: {every: 1 day}"))
    checkpoint = Checkpoint(pipeline.checkpoint)
    first = Schedule(pipeline, checkpoint, now=1000.0)
    assert first.due(now=1000.0 + DAY_S - 1) == []
    first.keep()
    second = Schedule(pipeline, checkpoint, now=1000.0 + 2 * DAY_S)
    assert [each.name for each in second.due(now=1000.0 + 2 * DAY_S)] == ["lake"]
    unplanned = load(declared(tmp_path))
    assert Schedule(unplanned, checkpoint, now=0.0).due(now=1e12) == []


def test_what_makes_no_sense_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandFailed, match=r"maintenance\.orphans must be a day at least"):
        load(declared(tmp_path, "maintenance: {orphans: 1 hour}"))
    assert main(["maintain", str(declared(tmp_path)), "--sink", "out"]) == 2
    assert "has no table sink 'out'" in capsys.readouterr().err
    assert main(["maintain", str(declared(tmp_path)), "--keep", "long"]) == 2
    checkpoint = Checkpoint(load(declared(tmp_path)).checkpoint)
    checkpoint.write_note("status.json", {"pid": os.getpid()})
    assert main(["maintain", str(declared(tmp_path))]) == 1
    assert "kept runs (process" in capsys.readouterr().err
