"""Where a pipeline keeps its things: said at the start, and compared with where they were."""

from __future__ import annotations

from pathlib import Path

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.spec import FileSink, Pipeline

NOTE = "places.json"
CHECKPOINT, WAREHOUSE = "checkpoint", "warehouse"


def places(pipeline: Pipeline) -> dict[str, str]:
    found = {CHECKPOINT: Checkpoint(pipeline.checkpoint).location}
    tables = [each for each in pipeline.sinks if isinstance(each, FileSink) and each.is_table]
    if any(each.kind == "iceberg" for each in tables):
        found[WAREHOUSE] = pipeline.warehouse
    return found | {f"sinks.{each.name}": each.path for each in tables}


def require_unmoved(pipeline: Pipeline, checkpoint: Checkpoint) -> list[str]:
    """What to say about places that have changed. A table that continues elsewhere would be two halves: refused."""
    before, now = checkpoint.read_note(NOTE), places(pipeline)
    moved = {name: was for name, was in before.items() if now.get(name, was) != was}
    said = []
    if was := moved.pop(CHECKPOINT, None):
        said.append(f"The checkpoint was at {was} before. See that nothing runs from there any more.")
    for name, was in moved.items():
        raise CommandFailed(
            f"{name}: batches before went to {was}, and the next would go to {now[name]}. Put the place back, or move "
            f"the table and remove the line from {checkpoint.location}/{NOTE}.",
            code=ExitCode.USAGE,
        )
    checkpoint.write_note(NOTE, now)
    return said


def require_not_left_behind(pipeline: Pipeline) -> None:
    """Checkpoints were below the working directory once: starting anew beside one would write everything again."""
    before = Path("data") / "pipelines" / pipeline.name
    now = Checkpoint(pipeline.checkpoint)
    if now.is_local and not now.path.exists() and (before / "sinks").is_dir() and before.absolute() != now.path:
        raise CommandFailed(
            f"There is a checkpoint of this pipeline at {before.absolute()}, and none at {now.path}, where it is "
            "looked for. Move it there, or say where it is with 'checkpoint'.",
            code=ExitCode.USAGE,
        )
