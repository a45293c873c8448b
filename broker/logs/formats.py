"""The two forms of a log line (tidemark.log.format)."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from tidemark.broker.logs.events import clipped, fields_of, printable, text_of
from tidemark.broker.logs.levels import name_of

TRACE_CHARACTERS_MAX: Final = 30_000
OWN: Final = frozenset(("time", "level", "logger", "node", "message", "exception"))


class JsonFormatter(logging.Formatter):
    """An object a line, in ASCII: no reader is in doubt where a line ends."""

    def __init__(self, *, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": moment_of(record),
            "level": name_of(record.levelno),
            "logger": record.name,
            "node": self._node_id,
            "message": text_of(record),
            **{name: value for name, value in fields_of(record).items() if name not in OWN},
        }
        if trace := _trace(self, record):
            event["exception"] = trace
        return json.dumps(event)


class ConsoleFormatter(logging.Formatter):
    """A line for people. What a request was about follows in brackets; an exception on lines that are indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {printable(text_of(record))}"
        if fields := getattr(record, "about", None):
            named = (f"{name}={printable(str(value))}" for name, value in fields_of(record).items() if name in fields)
            line += f" [{' '.join(named)}]"
        if trace := _trace(self, record):
            line += "".join(f"\n    {printable(each)}" for each in trace.splitlines())
        return line


class AuditFormatter(logging.Formatter):
    """The JSON object of the line, and when."""

    def format(self, record: logging.LogRecord) -> str:
        return f'{{"time": "{moment_of(record)}", {record.getMessage().removeprefix("{")}'


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    trace = formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""
    stack = formatter.formatStack(record.stack_info) if record.stack_info else ""
    return clipped("\n".join(filter(None, (trace, stack))), TRACE_CHARACTERS_MAX)


def moment_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
