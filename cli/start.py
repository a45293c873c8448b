"""`tidemark start`: run a broker, or several."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.cli import values
from tidemark.cli.broker_process import command, run_here, settings_arguments
from tidemark.cli.options import add_broker_settings

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers

BROKER: Final = "tidemark.broker.__main__"  # what `python -m tidemark.broker` runs
NODES_MAX: Final = 64


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "start",
        help=help,
        description="Start a broker, which runs until Ctrl-C. Without options it listens on 127.0.0.1:9092 and "
        "keeps its data in ./data.",
    )
    add_broker_settings(parser, file_help="a YAML file, or a Kafka server.properties file")
    parser.add_argument(
        "--nodes",
        type=values.whole_number(least=1, most=NODES_MAX),
        metavar="N",
        help="start a cluster of N brokers on this machine: ports count up from the listener's, each node has a folder"
        " of its own in the data directory",
    )
    parser.add_argument(
        "--make-certs",
        type=Path,
        metavar="DIRECTORY",
        help="before that, make throw-away certificates and passwords there, unless it has some: for trying"
        " config/secure.yaml and config/secure-cluster-3.yaml (see `tidemark certs make`)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.make_certs is not None:
        from tidemark.cli.certs import make_missing

        make_missing(args.make_certs)
    arguments = settings_arguments(config=args.config, settings=args.settings)
    if args.nodes is None:
        return run_here(BROKER, arguments)
    from tidemark.cli.nodes import start_nodes

    node_command = command(BROKER, arguments)
    return start_nodes(args.nodes, config=args.config, settings=args.settings, command=node_command)
