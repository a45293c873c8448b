"""`tidemark pipeline`: become the pipeline's own process, which alone knows Spark."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "pipeline",
        help="run data pipelines on Spark: topics in, tables and topics out",
        add_help=False,  # the pipeline's own parser answers, with all its commands
    )
    # --help before a command would else be looked for among our own options.
    parser.add_argument("-h", "--help", action="store_true", dest="wants_help")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    command = pipeline_command(["--help"] if args.wants_help else args.arguments)
    sys.stdout.flush()
    os.execv(command[0], command)


def pipeline_command(arguments: list[str]) -> list[str]:
    """-P: a directory named pipeline where the user stands is not ours."""
    return [sys.executable, "-P", "-m", "tidemark.pipeline", *arguments]
