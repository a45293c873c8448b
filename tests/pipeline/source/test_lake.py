"""The older part of a topic in a lake: found by its offsets, and read with the columns of the topic's records."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.pipeline.source import lake as lakes
from tidemark.pipeline.source.client import EARLIEST, ReadFailed
from tidemark.pipeline.source.fetching import DataLoss
from tidemark.pipeline.source.lake import Lake, LakeChanged, read_part
from tidemark.pipeline.source.options import read_options
from tidemark.pipeline.source.planning import Planner, Range

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def row(partition: int, offset: int, *, topic: str = "orders") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": NOON + timedelta(minutes=offset),
        "key": b"k",
        "value": None if offset == 3 else b"%d" % offset,
        "headers": [{"key": "h", "value": b"v"}] if offset == 1 else None,
    }


def keep(file: Path, rows: list[dict[str, Any]], **how: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file, **how)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """As an archive has it: by date, several partitions and topics in one file, and files of several row groups."""
    place = tmp_path / "archive"
    first = [row(partition, offset) for offset in range(5) for partition in (0, 1)]
    keep(place / "date=2030-01-31" / "a.parquet", [*first, row(0, 0, topic="other")], row_group_size=4)
    keep(place / "date=2030-02-01" / "b.parquet", [row(0, 5), row(0, 6), row(1, 7)])
    return place


def read(lake: Lake, wanted: dict[tuple[str, int], tuple[int, int]]) -> list[tuple[int, int]]:
    found = [batch for part in lake.parts(wanted) for batch in read_part(part, with_headers=True)]
    return [(each["partition"], each["offset"]) for batch in found for each in batch.to_pylist()]


def test_ranges_are_read_once_each_and_nothing_beside_them(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(directory))
    assert (lake.first(("orders", 0)), lake.end(("orders", 0)), lake.end(("orders", 1))) == (0, 7, 8)
    assert lake.end(("unknown", 0)) is None
    wanted = {("orders", 0): (2, 6), ("orders", 1): (0, 2)}
    expected = [(0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1)]
    assert sorted(read(lake, wanted)) == expected
    monkeypatch.setattr(lakes, "ROWS_PER_PIECE", 1)
    assert len(lake.parts(wanted)) == 4  # a row group each
    assert sorted(read(lake, wanted)) == expected


def test_rows_have_the_columns_of_the_topic(directory: Path) -> None:
    [part] = Lake(str(directory)).parts({("orders", 1): (1, 2)})
    [batch] = read_part(part, with_headers=True)
    assert batch.to_pylist() == [
        {
            "key": b"k",
            "value": b"1",
            "topic": "orders",
            "partition": 1,
            "offset": 1,
            "timestamp": NOON + timedelta(minutes=1),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"v"}],
        }
    ]
    [without] = read_part(part, with_headers=False)
    assert "headers" not in without.schema.names


def test_places_may_be_in_the_names_of_directories(tmp_path: Path) -> None:
    kept = [{f"_{name}": value for name, value in row(0, 4).items() if name not in ("topic", "partition")}]
    keep(tmp_path / "_topic=or%20ders" / "_partition=3" / "a.parquet", kept)
    # Directories of Spark's own begin with an underscore, too; so such a table is listed by name.
    listing = tmp_path / "files.json"
    listing.write_text(json.dumps([str(each) for each in tmp_path.rglob("*.parquet")]))
    assert read(Lake(str(listing)), {("or ders", 3): (0, 9)}) == [(3, 4)]


def test_what_is_no_lake_of_records_is_told(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match="there is no directory"):
        Lake(str(tmp_path / "nowhere"))
    keep(tmp_path / "parsed" / "a.parquet", [{"id": 1}])
    with pytest.raises(ReadFailed, match=r"no column 'topic'.*It must keep the place of each record"):
        Lake(str(tmp_path / "parsed"))
    [part, *_] = Lake(str(directory)).parts({("orders", 0): (5, 6)})
    (directory / "date=2030-02-01" / "b.parquet").unlink()
    with pytest.raises(LakeChanged, match=r"is gone: was the table compacted"):
        list(read_part(part, with_headers=False))


class LogOf:
    """A cluster whose partitions begin and end where they are told to."""

    def __init__(self, first: int, end: int) -> None:
        self.first, self.end = first, end

    def offsets(self, wanted: dict[tuple[str, int], int], *, committed: bool) -> dict[tuple[str, int], int]:
        del committed
        return {key: self.first if time == EARLIEST else self.end for key, time in wanted.items()}


def planner(directory: Path, log: LogOf, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "orders", "tidemark.lake": str(directory), **options}
    return Planner(log, read_options(given, streaming=True), Lake(str(directory)))  # type: ignore[arg-type]


def test_a_plan_goes_from_the_lake_to_the_topic_at_one_offset(directory: Path) -> None:
    key = ("orders", 0)
    plan = planner(directory, LogOf(4, 20), startingOffsets="earliest")
    assert plan.start([key]) == {key: 0}
    assert plan.ranges({key: 0}, {key: 12}) == [
        Range(topic="orders", partition=0, first=0, end=4, in_lake=True),
        Range(topic="orders", partition=0, first=4, end=12),
    ]
    assert plan.ranges({key: 1}, {key: 3}) == [Range(topic="orders", partition=0, first=1, end=3, in_lake=True)]
    assert plan.ranges({key: 5}, {key: 12}) == [Range(topic="orders", partition=0, first=5, end=12)]


def test_what_neither_has_is_lost_and_said(directory: Path) -> None:
    key = ("orders", 0)
    with pytest.raises(DataLoss, match="orders-0: offsets 7 to 8 are gone"):
        planner(directory, LogOf(9, 20)).ranges({key: 2}, {key: 12})
    lenient = planner(directory, LogOf(9, 20), failOnDataLoss="false")
    assert lenient.ranges({key: 2}, {key: 12}) == [
        Range(topic="orders", partition=0, first=2, end=7, in_lake=True),
        Range(topic="orders", partition=0, first=9, end=12),
    ]


def test_what_the_lake_has_no_longer_either_is_lost_and_said(directory: Path) -> None:
    """Its own oldest files were deleted: it begins after the reader's position."""
    key = ("orders", 0)
    (directory / "date=2030-01-31" / "a.parquet").unlink()
    with pytest.raises(DataLoss, match="orders-0: offsets 2 to 4 are gone"):
        planner(directory, LogOf(7, 20)).ranges({key: 2}, {key: 12})
    lenient = planner(directory, LogOf(7, 20), failOnDataLoss="false")
    assert lenient.ranges({key: 2}, {key: 12}) == [
        Range(topic="orders", partition=0, first=5, end=7, in_lake=True),
        Range(topic="orders", partition=0, first=7, end=12),
    ]
    assert lenient.ranges({key: 2}, {key: 4}) == []


def test_a_lake_that_has_grown_is_looked_at_again_before_anything_is_called_lost(directory: Path) -> None:
    plan, key = planner(directory, LogOf(9, 20)), ("orders", 0)
    keep(directory / "date=2030-02-02" / "c.parquet", [row(0, 7), row(0, 8)])
    [older, _] = plan.ranges({key: 2}, {key: 12})
    assert (older.first, older.end, older.in_lake) == (2, 9, True)


def test_a_time_before_the_topic_begins_is_found_in_the_lake(directory: Path) -> None:
    at = int((NOON + timedelta(minutes=2)).timestamp() * 1000)
    plan = planner(directory, LogOf(6, 6), startingTimestamp=str(at))
    assert plan.start([("orders", 0), ("orders", 1)]) == {("orders", 0): 2, ("orders", 1): 2}
