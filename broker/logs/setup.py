"""The log of a broker's own process. A broker inside somebody else's program leaves logging as it is there."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TextIO

from tidemark.broker.logs.background import BackgroundLines, write_whole
from tidemark.broker.logs.formats import AuditFormatter, ConsoleFormatter, JsonFormatter
from tidemark.broker.logs.handler import LimitedHandler


def set_up_logs(stream: TextIO | None, *, level: str, form: str, node_id: int) -> BackgroundLines:
    """What is written to it stands among the lines of the log."""
    formatter = JsonFormatter(node_id=node_id) if form == "json" else ConsoleFormatter()
    lines = BackgroundLines(_write_to(stream), tell_lost=lambda count: f"{formatter.format(_lost(count))}\n")
    handler = LimitedHandler(lines)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level, force=True)
    return lines


def _write_to(stream: TextIO | None) -> Callable[[str], None]:
    """None: it was closed before the process began. Its descriptor may be another file by now."""
    if stream is None:
        return lambda _lines: None
    try:
        return partial(write_whole, stream.fileno(), encoding=stream.encoding)
    except io.UnsupportedOperation:  # it is in the memory of the program that runs the broker
        return partial(_write_through, stream)


def _write_through(stream: TextIO, lines: str) -> None:
    stream.write(lines)
    stream.flush()


def tell(stream: TextIO | None, line: str) -> None:
    """For the few lines that are no part of the log: nobody waits until they are taken."""
    write = _write_to(stream)

    def run() -> None:
        with contextlib.suppress(OSError):  # nobody is there any more
            write(f"{line}\n")

    threading.Thread(target=run, name="tell", daemon=True).start()


def _lost(count: int) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": __name__,
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "msg": "%d lines were not written: those before were not taken in time",
            "args": (count,),
        }
    )


def set_up_audit_log(path: Path) -> BackgroundLines:
    """A file of its own, that may be moved away at any time. Only those who run the broker may read it."""
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    formatter = AuditFormatter()
    file = WatchedFileHandler(path, encoding="utf-8")
    file.terminator = ""

    def write_now(lines: str) -> None:
        file.handle(logging.makeLogRecord({"msg": lines}))

    def tell_lost(count: int) -> str:
        return f"{formatter.format(logging.makeLogRecord({'msg': json.dumps({'lost': count})}))}\n"

    lines = BackgroundLines(write_now, tell_lost=tell_lost)
    handler = logging.StreamHandler(lines)
    handler.setFormatter(formatter)
    audit = logging.getLogger("tidemark.audit")
    audit.addHandler(handler)
    audit.propagate = False
    return lines
