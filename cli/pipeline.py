"""`tidemark pipeline`: become the pipeline's own process, the only one that needs Spark."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from tidemark.cli.broker_process import command

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    # add_help: the pipeline's own parser answers, with all its commands.
    parser = commands.add_parser("pipeline", help=help, add_help=False)
    # --help before a command would otherwise be looked for among our own options.
    parser.add_argument("-h", "--help", action="store_true", dest="wants_help")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    arguments = pipeline_command(["--help"] if args.wants_help else args.arguments)
    sys.stdout.flush()
    os.execv(arguments[0], arguments)


def pipeline_command(arguments: list[str]) -> list[str]:
    return command("tidemark.pipeline", arguments)
