"""`tidemark recover-quorum`: when a majority of the voters is gone for good."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from tidemark.cli.start import module_command


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "recover-quorum",
        help="make a stopped node the only voter, when a majority of them is lost",
        description="When a majority of the voters is gone for good, nobody can decide anything any more. This makes a"
        " node that is left, and stopped, the only voter, with all that it knows: topics, their ids, settings. Without"
        " --yes it only says how much that is: choose the node with the highest term and index. What the others decided"
        " and it did not hear of is lost, and they must never be started again with what is on their disks.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the file that the node is started with")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting that wins over the file; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    command = module_command("tidemark.broker.recover_quorum", config=args.config, settings=args.settings)
    sys.stdout.flush()
    os.execv(command[0], [*command, *(["--yes"] if args.yes else [])])
