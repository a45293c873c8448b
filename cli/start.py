"""`tidemark start`: become a broker."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "start",
        help="start a broker",
        description="Start a broker and stay with it until Ctrl-C. Without options it listens on 127.0.0.1:9092 and "
        "keeps its data in ./data.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file, or a Kafka server.properties file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting that wins over the file; may be repeated",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="start a cluster of N brokers on this machine: ports count up from the listener's, each node has a folder"
        " of its own in the data directory",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    command = broker_command(config=args.config, settings=args.settings)
    sys.stdout.flush()
    if args.nodes is None:
        os.execv(command[0], command)
    from tidemark.cli.nodes import (
        start_nodes,  # nothing else here needs the settings table, which takes a while to load
    )

    return start_nodes(args.nodes, config=args.config, settings=args.settings, command=command)


def broker_command(*, config: Path | None, settings: list[str]) -> list[str]:
    """The command line of the broker's own process."""
    return module_command("tidemark.broker", config=config, settings=settings)


def module_command(module: str, *, config: Path | None, settings: list[str]) -> list[str]:
    """-P: a directory named broker where the user stands is not ours."""
    command = [sys.executable, "-P", "-m", module]
    if config is not None:
        command += ["--config", str(config)]
    for setting in settings:
        command += ["--set", setting]
    return command
