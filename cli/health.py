"""`tidemark health`: is a node ready for clients, and if not, why?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidemark.cli.http_client import default_url, get_json
from tidemark.cli.options import add_json, http_options
from tidemark.cli.output import print_json
from tidemark.cli.security import security_of
from tidemark.failure import ExitCode

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "health",
        help=help,
        parents=[http_options()],
        description="Asks a node's HTTP listener whether it is ready for clients. The exit code is 0 if it is, 1 if it"
        " is not, 3 if it does not answer.",
    )
    parser.add_argument(
        "url", nargs="?", default=default_url(), help="its HTTP listener (default: $TIDEMARK_HTTP, or %(default)s)"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    status, document = get_json(args.url, "/readyz", security=security_of(args), seconds_max=args.timeout)
    if args.json:
        print_json(document)
    else:
        print(f"node {document.get('node_id', '?')} is {document.get('status', '?')}")
        for name, finding in document.get("checks", {}).items():
            print(f"  {name}: {finding}")
    return ExitCode.OK if status == 200 else ExitCode.FAILED
