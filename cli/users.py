"""`tidemark users`: who may log in by SCRAM. Passwords are salted and iterated here; the cluster never sees them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.cli import values
from tidemark.cli.cluster_client import ClusterClient, check
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.cli.passwords import read_password
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidemark.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tidemark.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, salted_password

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
SALT_BYTES: Final = 26

Credentials = dict[str, list[tuple[str, int]]]  # by user: mechanism and iterations


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("users", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, run, text in (
        ("create", create, "make a user"),
        ("passwd", passwd, "give a user another password; logins that are open stay open until they end"),
    ):
        action = actions.add_parser(name, parents=[client_options()], help=text)
        action.add_argument("name", type=values.name, metavar="NAME")
        _add_new_password(action)
        action.set_defaults(run=run)
    listing = actions.add_parser("list", parents=[client_options()], help="list users, and how they can log in")
    add_json(listing)
    listing.set_defaults(run=list_users)
    deletion = actions.add_parser("delete", parents=[client_options()], help="delete a user's credentials")
    deletion.add_argument("name", type=values.name, metavar="NAME")
    deletion.set_defaults(run=delete)


def _add_new_password(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--new-password-file",
        type=Path,
        metavar="FILE",
        help="the user's password; without it it is asked for, or read as a line of standard input",
    )
    action.add_argument(
        "--with",
        action="append",
        choices=sorted(MECHANISMS.values()),
        dest="mechanisms",
        help="for this mechanism only; may be repeated (default: all)",
    )
    iterations = values.whole_number(least=ITERATIONS_MIN, most=ITERATIONS_MAX)
    action.add_argument("--iterations", type=iterations, default=ITERATIONS_MIN, metavar="N", help="default: 4096")


def create(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        if args.name in _credentials(cluster):
            raise CommandFailed(f"There is a user {args.name} already: use `tidemark users passwd`.")
        _set_password(args, cluster)
    print(f"The user {args.name} is made.")
    return ExitCode.OK


def passwd(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        if args.name not in _credentials(cluster):
            raise CommandFailed(f"There is no user {args.name}.", code=ExitCode.NOT_FOUND)
        _set_password(args, cluster)
    print(f"The user {args.name} has a new password.")
    return ExitCode.OK


def delete(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        found = _credentials(cluster).get(args.name)
        if found is None:
            raise CommandFailed(f"There is no user {args.name}.", code=ExitCode.NOT_FOUND)
        numbers = {name: number for number, name in MECHANISMS.items()}
        deletions = [ScramCredentialDeletion(name=args.name, mechanism=numbers[name]) for name, _ in found]
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=deletions))
    print(f"The user {args.name} is deleted.")
    return ExitCode.OK


def list_users(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        found = _credentials(cluster)
    rows = [(user, mechanism, iterations) for user, each in sorted(found.items()) for mechanism, iterations in each]
    if args.json:
        print_json([{"user": user, "mechanism": how, "iterations": count} for user, how, count in rows])
    elif rows:
        print(table(("user", "mechanism", "iterations"), [(user, how, str(count)) for user, how, count in rows]))
    return ExitCode.OK


def _set_password(args: argparse.Namespace, cluster: ClusterClient) -> None:
    password = read_password(args.new_password_file, f"New password of {args.name}", twice=True)
    wanted = args.mechanisms or MECHANISMS.values()
    upsertions = [
        _upsertion(args.name, number, password, args.iterations)
        for number, mechanism in MECHANISMS.items()
        if mechanism in wanted
    ]
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=upsertions))


def _upsertion(user: str, number: int, password: str, iterations: int) -> ScramCredentialUpsertion:
    salt = os.urandom(SALT_BYTES)
    salted = salted_password(MECHANISMS[number], password, salt=salt, iterations=iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )


def _alter(cluster: ClusterClient, request: AlterUserScramCredentialsRequest) -> None:
    for each in cluster.call_any(request, AlterUserScramCredentialsResponse, 0).results:
        check(each.error_code, f"The user {each.user}", each.error_message)


def _credentials(cluster: ClusterClient) -> Credentials:
    answer = cluster.call_any(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse, 0)
    check(answer.error_code, "The users", answer.error_message)
    return {
        each.user: [(MECHANISMS.get(info.mechanism, "?"), info.iterations) for info in each.credential_infos]
        for each in answer.results
    }
