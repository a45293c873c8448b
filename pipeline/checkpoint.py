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

READS_NOTE = "reads.json"  # which sinks share a read of their source, and so its place in the checkpoint


class Checkpoint:
    def __init__(self, location: str) -> None:
        self.is_local = "://" not in location
        self.location = os.fspath(Path(location).absolute()) if self.is_local else location

    @property
    def path(self) -> Path:
        return Path(self.location)

    def of_sink(self, sink: str) -> str:
        """Where Spark keeps the logs of the query that feeds the sink; or that is named, itself."""
        shared = (read for read, members in self.read_note(READS_NOTE).items() if sink in members)
        return f"{self.location}/sinks/{next(shared, sink)}"

    def exists(self, sink: str) -> bool:
        return self.is_local and (Path(self.of_sink(sink)) / "metadata").exists()

    def positions(self, sink: str) -> dict[Partition, int]:
        """Where the sink's finished batches end; empty before the first."""
        directory = Path(self.of_sink(sink))
        done = self.last_batch(sink)
        if done is None:
            return {}
        return _offsets(directory / "offsets" / str(done))

    def last_batch(self, sink: str) -> int | None:
        """The newest batch that is finished."""
        return self._newest(sink, "commits")

    def last_planned(self, sink: str) -> int | None:
        """The newest batch whose records are fixed; it is finished, or comes next."""
        return self._newest(sink, "offsets")

    def _newest(self, sink: str, log: str) -> int | None:
        directory = Path(self.of_sink(sink)) / log
        if not self.is_local or not directory.is_dir():
            return None
        return max((int(each.name) for each in directory.iterdir() if each.name.isdecimal()), default=None)

    def planned(self, sink: str, batch: int) -> dict[Partition, int]:
        """Where a batch ends; empty if it is not planned, or the checkpoint is on another machine."""
        log = Path(self.of_sink(sink)) / "offsets" / str(batch)
        return _offsets(log) if self.is_local and log.exists() else {}

    def query_id(self, sink: str) -> str | None:
        metadata = Path(self.of_sink(sink)) / "metadata"
        if not self.is_local or not metadata.exists():
            return None
        found = _json(metadata, metadata.read_text(errors="replace"))
        return str(found["id"]) if isinstance(found, dict) and "id" in found else None

    def forget_planned(self, sink: str) -> bool:
        """Lets Spark plan the next batch anew, if it is planned but not finished. True if there was one.

        The caller knows that nothing of it was written, and that nobody is about to."""
        planned, done = self.last_planned(sink), self.last_batch(sink)
        if planned is None or (done is not None and planned <= done):
            return False
        offsets = Path(self.of_sink(sink)) / "offsets"
        (offsets / f".{planned}.crc").unlink(missing_ok=True)
        (offsets / str(planned)).unlink()
        return True

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

    def has_state(self, sink: str) -> bool:
        return not self.is_local or (Path(self.of_sink(sink)) / "state").is_dir()

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
        found = furthest_behind(found, positions_in(content))
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


def furthest_behind(one: Mapping[Partition, int], other: Mapping[Partition, int]) -> dict[Partition, int]:
    """A query may read a topic twice, by two sources: what one of them has yet to read is not done."""
    return {**one, **{each: min(offset, one.get(each, offset)) for each, offset in other.items()}}


def as_json(positions: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Positions in the connector's form, {"topic": {"0": 12}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _json(file: Path, text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError:
        raise _damaged(file, "it is not JSON") from None
    return found


WHAT_TO_DO = (
    "Restore the checkpoint's directory from a copy that was made after the last batch was written (an older one is "
    "refused); or delete it, and the pipeline starts again from its sources' 'start' and writes everything once more: "
    "give table sinks a new path then, so that no row is in a table twice."
)


def _damaged(file: Path, why: str) -> CommandFailed:
    return CommandFailed(f"The checkpoint is damaged: {file}: {why}. {WHAT_TO_DO}")
