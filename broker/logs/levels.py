"""Levels of loggers, changed while the process runs (Kafka's BROKER_LOGGER; KIP-412).

They belong to the process and are forgotten at its end, as Kafka's are. Names of levels are Kafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode

ROOT: Final = "root"
OURS: Final = "tidemark"
TRACE: Final = 5  # below Python's DEBUG
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
_NAMES: Final = {level: name for name, level in LEVELS.items()}


def name_of(level: int) -> str:
    """Kafka's name of a level; of one in between, the next below."""
    return _NAMES.get(level) or next((name for name, least in LEVELS.items() if level >= least), "TRACE")


class LogLevels:
    def __init__(self) -> None:
        self._watchers: list[Callable[[], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        """It is called whenever a level has changed."""
        self._watchers.append(watcher)

    def describe(self, names: Collection[str] | None = None) -> dict[str, str]:
        """The level that counts for each logger, or for those in `names`."""
        return {name: name_of(_logger(name).getEffectiveLevel()) for name in _known() if names is None or name in names}

    def check(self, changes: Sequence[tuple[str, str | None]]) -> None:
        """Raises Refused. A level of None takes a logger's own level away: the one above it counts."""
        known = set(_known())
        for name, level in changes:
            if name not in known:
                raise Refused(ErrorCode.INVALID_CONFIG, f"There is no logger {name}.")
            if level is None and name == ROOT:
                raise Refused(ErrorCode.INVALID_REQUEST, "The root logger always has a level.")
            if level is not None and level not in LEVELS:
                allowed = ", ".join(LEVELS)
                raise Refused(
                    ErrorCode.INVALID_CONFIG, f"The level of {name} cannot be {level!r}; it must be one of {allowed}."
                )

    def change(self, changes: Sequence[tuple[str, str | None]]) -> None:
        """What `check` has let pass."""
        for name, level in changes:
            _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])
        for watcher in self._watchers:
            watcher()


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _known() -> list[str]:
    """The loggers there are, and those above them: setting one of these sets all below it."""
    made = sorted(logging.root.manager.loggerDict)
    return [ROOT, *(name for name in made if name == OURS or name.startswith(f"{OURS}."))]
