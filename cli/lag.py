"""`tidemark lag`: how far behind the groups are, partition by partition."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidemark.cli import client, values
from tidemark.cli.group_positions import HEADS, GroupPosition, describe_group, exists, no_such_group, positions
from tidemark.cli.groups import all_groups
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.failure import ExitCode

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("lag", parents=[client_options()], help=help)
    parser.add_argument(
        "-g",
        "--group",
        action="append",
        type=values.name,
        dest="groups",
        metavar="G",
        help="default: all; may be repeated",
    )
    add_json(parser)
    parser.set_defaults(run=lag)


def lag(args: argparse.Namespace) -> int:
    admin = client.admin(args)
    found: list[GroupPosition] = []
    for group in args.groups or [each.group_id for each in all_groups(args)]:
        described = describe_group(admin, args, group)
        if exists(described):
            found += positions(admin, args, described)
        elif args.groups:
            raise no_such_group(group)
    if args.json:
        print_json([asdict(each) for each in found])
    elif found:
        print(table(("group", *HEADS), [(each.group, *each.row()) for each in found]))
    return ExitCode.OK
