"""What the commands on a stopped node share: its settings, the lock on its directories, failures as sentences."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidemark.broker.config import BrokerConfig, ConfigError, load_config
from tidemark.environment import current
from tidemark.raft import JournalCorrupt, RaftError
from tidemark.storage import StorageError, locked

EXIT_FAILED = 1
EXIT_USAGE = 2


class Failed(Exception):
    """The sentence that the command ends with."""


def offline_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"tidemark {name}", description=description)
    parser.add_argument("--config", type=Path, help="the file that the node is started with")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    parser.add_argument("--yes", action="store_true", help="make the change; without this, only show what there is")
    return parser


def run_offline(arguments: argparse.Namespace, work: Callable[[BrokerConfig], int]) -> int:
    """Calls `work` with the settings. Returns the exit code."""
    try:
        return work(load_config(arguments.config, arguments.set))
    except ConfigError as error:
        return _fail(str(error), EXIT_USAGE)
    except OSError as error:
        return _fail(f"{error.filename or 'the data'}: {error.strerror or error}")
    except (Failed, StorageError, JournalCorrupt, RaftError) as error:
        return _fail(str(error))


@contextmanager
def locked_directories(paths: Sequence[str]) -> Iterator[None]:
    """No broker uses them meanwhile."""
    with ExitStack() as held:
        for path in paths:
            if not current().files.is_directory(path):
                raise Failed(f"there is no data directory {path}")
            held.enter_context(locked(path))
        yield


def _fail(sentence: str, code: int = EXIT_FAILED) -> int:
    print(f"tidemark: {sentence}", file=sys.stderr)
    return code
