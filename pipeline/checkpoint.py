"""What stands in a pipeline's checkpoint: Spark's logs per sink, and our own notes beside them.

Only directories of this machine (or mounted on it) are looked into; others are left to Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import Partition


class Checkpoint:
    def __init__(self, location: str) -> None:
        self.is_local = "://" not in location
        self.location = os.fspath(Path(location).absolute()) if self.is_local else location

    @property
    def path(self) -> Path:
        return Path(self.location)

    def of_sink(self, sink: str) -> str:
        return f"{self.location}/sinks/{sink}"

    def positions(self, sink: str) -> dict[Partition, int]:
        """Where the sink's finished batches end; empty before the first."""
        directory = Path(self.of_sink(sink))
        done = self.last_batch(sink)
        if done is None:
            return {}
        return _offsets(directory / "offsets" / str(done))

    def last_batch(self, sink: str) -> int | None:
        commits = Path(self.of_sink(sink)) / "commits"
        if not self.is_local or not commits.is_dir():
            return None
        return max((int(each.name) for each in commits.iterdir() if each.name.isdecimal()), default=None)

    def require_sound(self, sink: str) -> None:
        """What Spark would fail on with a stack trace is found here, and said with what to do."""
        directory = Path(self.of_sink(sink))
        if not self.is_local or not directory.is_dir():
            return
        metadata = directory / "metadata"
        if metadata.exists():
            _json(metadata, metadata.read_text(errors="replace"))
        offsets = directory / "offsets"
        if not metadata.exists() and offsets.is_dir() and any(offsets.iterdir()):
            raise _damaged(metadata, "it is missing, but there are finished batches")
        if not offsets.is_dir():
            return
        numbers = sorted(int(each.name) for each in offsets.iterdir() if each.name.isdecimal())
        for number in numbers[-2:]:
            _offsets(offsets / str(number))
        done = self.last_batch(sink)
        if done is not None:
            _require_version(directory / "commits" / str(done))
        if done is not None and numbers and done > numbers[-1]:
            raise _damaged(offsets / str(done), "the batch is finished, but what it read is not recorded")

    def read_note(self, name: str) -> dict[str, Any]:
        note = self.path / name
        if not self.is_local or not note.exists():
            return {}
        found = _json(note, note.read_text(errors="replace"))
        if not isinstance(found, dict):
            raise _damaged(note, "it is not a JSON object")
        return found

    def write_note(self, name: str, value: Mapping[str, Any]) -> None:
        if not self.is_local:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.new"
        temporary.write_text(json.dumps(value, indent=1))
        temporary.replace(self.path / name)


def _offsets(log: Path) -> dict[Partition, int]:
    """Spark's offset log: a version, the batch's metadata, then a line for each source ('-' if it has none yet)."""
    lines = _require_version(log)
    found: dict[Partition, int] = {}
    for line in lines[1:]:
        if line == "-":
            continue
        content = _json(log, line)
        found |= positions_in(content)
    return found


def _require_version(log: Path) -> list[str]:
    """The lines of one of Spark's logs, which begin with a version, as in v1."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as error:
        raise _damaged(log, error.strerror or str(error)) from None
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise _damaged(log, "it does not begin as it should")
    return lines


def positions_in(content: object) -> dict[Partition, int]:
    """The connector's offsets, {"topic": {"0": 12}}; anything else (a file source's) is none of ours."""
    if not isinstance(content, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, by_partition in content.items()
        if isinstance(by_partition, dict)
        for partition, offset in by_partition.items()
        if partition.isdecimal() and isinstance(offset, int)
    }


def _json(file: Path, text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError:
        raise _damaged(file, "it is not JSON") from None
    return found


WHAT_TO_DO = (
    "Restore the checkpoint's directory from a copy; or delete it, and the pipeline starts again from its sources' "
    "'start' and writes everything once more."
)


def _damaged(file: Path, why: str) -> CommandFailed:
    return CommandFailed(f"The checkpoint is damaged: {file}: {why}. {WHAT_TO_DO}")
