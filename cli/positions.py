"""Where `tidemark consume` starts: the -o option."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.cli.values import clipped

WORDS = {"beginning": "beginning", "earliest": "beginning", "end": "end", "latest": "end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """`kind` is beginning, end, offset (an absolute one), last (so many from the end) or time (milliseconds)."""

    kind: str
    number: int = 0


BEGINNING = Position(kind="beginning")
END = Position(kind="end")


def parse_position(text: str) -> Position:
    """beginning | end | N | -N | s@TIME, where TIME is milliseconds since 1970 or an ISO date and time."""
    if text in WORDS:
        return Position(kind=WORDS[text])
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Position(kind="offset", number=int(text))
    if re.fullmatch(r"-[0-9]{1,18}", text):
        return Position(kind="last", number=int(text[1:]))
    if text.startswith("s@"):
        return Position(kind="time", number=milliseconds(text[2:]))
    raise argparse.ArgumentTypeError(f"{clipped(text)} is not beginning, end, N, -N or s@TIME")


def milliseconds(text: str) -> int:
    """Milliseconds since 1970, written as such or as an ISO date and time, in UTC if it names no zone."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since_1970 = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        since_1970 = -1
    if since_1970 < 0:
        raise argparse.ArgumentTypeError(
            f"{clipped(text)} is neither milliseconds since 1970 nor a date like 2030-01-31T12:00"
        )
    return since_1970
