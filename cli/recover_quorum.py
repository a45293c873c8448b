"""`tidemark recover-quorum`: for when a majority of the voters is gone for good."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidemark.cli.broker_process import run_here, settings_arguments
from tidemark.cli.options import add_broker_settings

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "recover-quorum",
        help=help,
        description="When a majority of the voters is gone for good, the metadata cannot be changed any more. This"
        " makes one of the remaining nodes, while it is stopped, the only voter, with all its metadata: topics, their"
        " ids, settings. Without --yes it only shows how much that is: choose the node with the highest term and index."
        " Whatever the lost voters decided and this node did not receive is lost, and they must never be started again"
        " with what is on their disks.",
    )
    add_broker_settings(parser, file_help="the file that the node is started with")
    parser.add_argument("--yes", action="store_true", help="make the change; without this, only show what there is")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    arguments = settings_arguments(config=args.config, settings=args.settings)
    return run_here("tidemark.broker.recover_quorum", [*arguments, *(["--yes"] if args.yes else [])])
