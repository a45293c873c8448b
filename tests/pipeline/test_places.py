"""Where a pipeline keeps its things does not depend on where somebody stands, and a move is noticed."""

from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.places import places, require_not_left_behind, require_unmoved
from tidemark.pipeline.spec import Pipeline, load

YAML = """\
name: shop
sources:
  orders: {topic: orders, format: string}
sinks:
  lake: {type: parquet, from: orders, path: lake/orders}
  ice: {type: iceberg, from: orders, path: lake.db.orders}
"""


def loaded(directory: Path, *overrides: str) -> Pipeline:
    directory.mkdir(exist_ok=True)
    (directory / "shop.yaml").write_text(YAML)
    return load(directory / "shop.yaml", overrides=overrides)


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places(loaded(tmp_path / "here")) == {
        "checkpoint": f"{tmp_path}/here/checkpoints/shop",
        "warehouse": f"{tmp_path}/here/lake",
        "sinks.lake": f"{tmp_path}/here/lake/orders",
        "sinks.ice": "lake.db.orders",
    }


def test_or_to_what_is_configured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINE_HOME", "/srv/pipelines")
    assert loaded(tmp_path).checkpoint == "/srv/pipelines/checkpoints/shop"
    assert loaded(tmp_path, "directory=state").checkpoint == f"{tmp_path}/state/checkpoints/shop"
    assert loaded(tmp_path, "checkpoint=s3://bucket/shop").checkpoint == "s3://bucket/shop"


def test_a_table_that_would_go_on_elsewhere_is_refused(tmp_path: Path) -> None:
    before = loaded(tmp_path)
    assert require_unmoved(before, Checkpoint(before.checkpoint)) == []
    after = loaded(tmp_path, "sinks.lake.path=elsewhere")
    with pytest.raises(CommandFailed, match=r"sinks\.lake: batches before went to .*/lake/orders, and the next would"):
        require_unmoved(after, Checkpoint(after.checkpoint))


def test_a_checkpoint_that_was_moved_is_told(tmp_path: Path) -> None:
    before = loaded(tmp_path)
    require_unmoved(before, Checkpoint(before.checkpoint))
    Checkpoint(before.checkpoint).path.rename(tmp_path / "moved")
    after = loaded(tmp_path, "checkpoint=moved")
    assert require_unmoved(after, Checkpoint(after.checkpoint))[0].startswith("The checkpoint was at ")


def test_a_checkpoint_where_it_used_to_be_is_not_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "pipelines" / "shop" / "sinks").mkdir(parents=True)
    with pytest.raises(CommandFailed, match=r"There is a checkpoint of this pipeline at .*data/pipelines/shop"):
        require_not_left_behind(loaded(tmp_path))
    require_not_left_behind(loaded(tmp_path, "checkpoint=data/pipelines/shop"))
