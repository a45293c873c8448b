"""`tidemark format`: make a new cluster's first users, or let a node whose metadata is lost join its cluster again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidemark.cli.broker_process import run_here, settings_arguments
from tidemark.cli.options import add_broker_settings

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "format",
        help=help,
        description="A node's first start needs no formatting: it makes its directories by itself. With --add-scram the"
        " cluster that starts there has users from its first moment on; do that for every controller."
        " A node that finds no"
        " metadata although its log directories belong to a cluster does not start, because a disk may not be mounted."
        " If the metadata is lost for good, take the node's vote away (tidemark cluster decommission, or Kafka's"
        " MetadataQuorumCommand remove-controller), and run this: at its next start the node joins its cluster again,"
        " without a vote. A directory that holds metadata is never formatted. Without --yes it only shows what it"
        " would do.",
    )
    add_broker_settings(parser, file_help="the file that the node is started with")
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=…,password=…]",
        help="a user of a cluster that is new, as Kafka's storage tool takes it; the password may be ${file:PATH} or"
        " ${env:NAME}; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="make the change; without this, only show what there is")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    arguments = settings_arguments(config=args.config, settings=args.settings)
    arguments += [word for text in args.add_scram for word in ("--add-scram", text)]
    return run_here("tidemark.broker.format", [*arguments, *(["--yes"] if args.yes else [])])
