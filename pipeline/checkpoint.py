"""What stands in a pipeline's checkpoint: Spark's logs per sink, and our own notes beside them.

A place that is not of this machine is looked into with Spark's help, where there is a session.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint_files import files_at
from tidemark.pipeline.cluster import Partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READS_NOTE = "reads.json"  # which sinks share a read of their source, and so its place in the checkpoint


def tables_note(read: str) -> str:
    """What the tables were made of that the newest batch of a read has seen."""
    return f"tables.{read}.json"


def batches_note(sink: str) -> str:
    """The topic that says which batches of a sink are written, by its id: without it nothing does."""
    return f"batches.{sink}.json"


class Checkpoint:
    def __init__(self, location: str, spark: SparkSession | None = None) -> None:
        """`spark`: by which a checkpoint that is not of this machine is looked into; without it, it seems empty."""
        self.is_local = "://" not in location
        self.location = os.fspath(Path(location).absolute()) if self.is_local else location.rstrip("/")
        self._files = files_at(location, spark)

    @property
    def path(self) -> Path:
        """Of one on this machine."""
        return Path(self.location)

    def of_sink(self, sink: str) -> str:
        """Where Spark keeps the logs of the query that feeds the sink; or that is named, itself."""
        reads = self.read_note(READS_NOTE) if self.is_local else {}  # elsewhere none is shared
        shared = (read for read, members in reads.items() if sink in members)
        return f"{self.location}/sinks/{next(shared, sink)}"

    def exists(self, sink: str) -> bool:
        return self._files.read(f"{self.of_sink(sink)}/metadata") is not None

    def positions(self, sink: str) -> dict[Partition, int]:
        """Where the sink's finished batches end; empty before the first."""
        done = self.last_batch(sink)
        return {} if done is None else self._offsets(f"{self.of_sink(sink)}/offsets/{done}")

    def last_batch(self, sink: str) -> int | None:
        """The newest batch that is finished."""
        return max(self._numbers(sink, "commits"), default=None)

    def last_planned(self, sink: str) -> int | None:
        """The newest batch whose records are fixed; it is finished, or comes next."""
        return max(self._numbers(sink, "offsets"), default=None)

    def _numbers(self, sink: str, log: str) -> list[int]:
        return [int(name) for name in self._files.names(f"{self.of_sink(sink)}/{log}") if name.isdecimal()]

    def planned(self, sink: str, batch: int) -> dict[Partition, int]:
        """Where a batch ends; empty if it is not planned, or the checkpoint cannot be looked into."""
        log = f"{self.of_sink(sink)}/offsets/{batch}"
        return {} if self._files.read(log) is None else self._offsets(log)

    def query_id(self, sink: str) -> str | None:
        metadata = f"{self.of_sink(sink)}/metadata"
        text = self._files.read(metadata)
        found = None if text is None else _json(metadata, text)
        return str(found["id"]) if isinstance(found, dict) and "id" in found else None

    def forget_planned(self, sink: str) -> bool:
        """Lets Spark plan the next batch anew, if it is planned but not finished. True if there was one.

        The caller knows that nothing of it was written, and that nobody is about to."""
        planned, done = self.last_planned(sink), self.last_batch(sink)
        if planned is None or (done is not None and planned <= done):
            return False
        if (note := tables_note(sink)) in self._files.names(self.location):
            self._files.remove(f"{self.location}/{note}")
        self._files.remove(f"{self.of_sink(sink)}/offsets/{planned}")
        return True

    def require_sound(self, sink: str) -> None:
        """What Spark would fail on with a stack trace is found here, and said with what to do."""
        directory = self.of_sink(sink)
        metadata = self._files.read(f"{directory}/metadata")
        if metadata is not None:
            _json(f"{directory}/metadata", metadata)
        numbers = sorted(self._numbers(sink, "offsets"))
        if metadata is None and numbers:
            raise _damaged(f"{directory}/metadata", "it is missing, but there are finished batches")
        for number in numbers[-2:]:
            self._offsets(f"{directory}/offsets/{number}")
        done = self.last_batch(sink)
        if done is None:
            return
        self._lines(f"{directory}/commits/{done}")
        if numbers and done > numbers[-1]:
            raise _damaged(f"{directory}/offsets/{done}", "the batch is finished, but what it read is not recorded")

    def has_state(self, sink: str) -> bool:
        return not self.is_local or "state" in self._files.names(self.of_sink(sink))

    def read_note(self, name: str) -> dict[str, Any]:
        note = f"{self.location}/{name}"
        text = self._files.read(note)
        found = {} if text is None else _json(note, text)
        if not isinstance(found, dict):
            raise _damaged(note, "it is not a JSON object")
        return found

    def write_note(self, name: str, value: Mapping[str, Any]) -> None:
        self._files.write(f"{self.location}/{name}", json.dumps(value, indent=1))

    def _offsets(self, log: str) -> dict[Partition, int]:
        """Spark's offset log: a version, the batch's metadata, then a line for each source ('-' if it has none yet)."""
        found: dict[Partition, int] = {}
        for line in self._lines(log)[1:]:
            if line != "-":
                found = furthest_behind(found, positions_in(_json(log, line)))
        return found

    def _lines(self, log: str) -> list[str]:
        """Of one of Spark's logs, which begin with a version, as in v1."""
        try:
            text = self._files.read(log)
        except OSError as error:
            raise _damaged(log, error.strerror or str(error)) from None
        if text is None:
            raise _damaged(log, "it is missing")
        lines = text.splitlines()
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


def _json(file: str, text: str) -> object:
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


def _damaged(file: str, why: str) -> CommandFailed:
    return CommandFailed(f"The checkpoint is damaged: {file}: {why}. {WHAT_TO_DO}")
