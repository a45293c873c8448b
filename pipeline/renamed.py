"""Sinks that only got another name: a new name is a new sink, which would write everything again to the same place."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.spec import FileSink, Sink

NOTE = "outputs.json"


def require_not_renamed(sinks: Sequence[Sink], checkpoint: Checkpoint) -> None:
    """Keeps what each sink writes to, also of sinks that are taken out."""
    before: dict[str, str] = checkpoint.read_note(NOTE)
    now = {sink.name: output for sink in sinks if (output := _output_of(sink)) is not None}
    for name, output in now.items():
        others = [other for other, place in before.items() if place == output and other not in now]
        if name not in before and others:
            raise CommandFailed(
                f"sinks.{name}: sinks.{others[0]}, which is no longer in the pipeline, has written to {output}. Under "
                "another name a sink starts anew, and everything would be there twice. Give it the old name; or remove "
                f"the line of {others[0]!r} from {checkpoint.location}/{NOTE}, if that is what you want.",
                code=ExitCode.USAGE,
            )
    if now.items() - before.items():
        checkpoint.write_note(NOTE, before | now)


def _output_of(sink: Sink) -> str | None:
    """None where a column says it, or a function of the user's."""
    if isinstance(sink, FileSink):
        return f"the {sink.kind} table {sink.path}" if sink.is_table else None
    return f"the topic {sink.topic}" if sink.topic else None
