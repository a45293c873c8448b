"""`tidemark certs`: throw-away certificates, so that TLS can be tried and tested in a minute."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.cli import values
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tidemark.certificates import Certificate
    from tidemark.cli.options import Subparsers

DAYS_MAX: Final = 3650
HOSTS: Final = "localhost,127.0.0.1,::1"
DEFAULT_NODES: Final = ("node",)
DEFAULT_CLIENTS: Final = ("client",)
DAYS: Final = 365
PASSWORD: Final = "tidemark"  # of .p12 files, which Java wants one for
PASSWORD_BYTES: Final = 18


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "certs",
        help=help,
        description="Certificates for development and tests. Not for production: the authority's key lies beside them.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    make = actions.add_parser(
        "make",
        help="make an authority, and certificates for nodes and clients",
        description="Make an authority, unless the directory has one, and what it signs. For NAME there will be"
        " NAME.pem (key and certificate), NAME.p12, and NAME.password for logging in; ca.pem is what the other side"
        " trusts.",
    )
    make.add_argument("directory", type=Path, metavar="DIRECTORY", help="where they are written")
    make.add_argument(
        "--node", action="append", default=[], metavar="NAME[=HOST,…]", help=f"a node (default: node={HOSTS})"
    )
    make.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME",
        help="a client: a name, or CN=ann,OU=ops (default: client)",
    )
    make.add_argument("--days", type=values.whole_number(least=1, most=DAYS_MAX), default=DAYS, metavar="N")
    make.add_argument("--password", default=PASSWORD, metavar="TEXT", help="of the .p12 files (default: %(default)s)")
    make.set_defaults(run=run_make)


def run_make(args: argparse.Namespace) -> int:
    directory: Path = args.directory
    for name in make(
        directory,
        nodes=args.node or DEFAULT_NODES,
        clients=args.client or DEFAULT_CLIENTS,
        days=args.days,
        password=args.password,
    ):
        print(directory / f"{name}.pem")
    print(_help(directory), file=sys.stderr)
    return ExitCode.OK


def make_missing(directory: Path) -> None:
    """For `tidemark start --make-certs`: an authority and passwords that are there stay as they are."""
    names = (*DEFAULT_NODES, *DEFAULT_CLIENTS)
    wanted = ["ca.pem", *(f"{name}.{kind}" for name in names for kind in ("pem", "password"))]
    if not all((directory / name).exists() for name in wanted):
        make(directory)


def make(
    directory: Path,
    *,
    nodes: Sequence[str] = DEFAULT_NODES,
    clients: Sequence[str] = DEFAULT_CLIENTS,
    days: int = DAYS,
    password: str = PASSWORD,
) -> list[str]:
    """The names of what was made."""
    from tidemark.certificates import Authority, write_private

    made: list[str] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority.load(directory) if (directory / "ca.pem").exists() else Authority.make()
        write_private(directory / "ca.key", authority.key_pem)
        (directory / "ca.pem").write_bytes(authority.pem)
        for text in nodes:
            name, _, hosts = text.partition("=")
            issued = authority.issue(name, (hosts or HOSTS).split(","), days=days)
            made.append(_write(directory, name, issued, password=password))
        for name in clients:
            issued = authority.issue(name, days=days)
            made.append(_write(directory, _file_name(name), issued, password=password))
    except OSError as error:
        raise CommandFailed(f"{error.filename or directory}: {error.strerror}.", code=ExitCode.USAGE) from None
    except ValueError as error:
        raise CommandFailed(f"{error}.".replace("..", "."), code=ExitCode.USAGE) from None
    return made


def _file_name(name: str) -> str:
    """Of CN=ann,OU=ops, the part that people know."""
    return name.partition(",")[0].removeprefix("CN=")


def _write(directory: Path, name: str, issued: Certificate, *, password: str) -> str:
    """A password for logging in stays as it is, when certificates are renewed: users have been made with it."""
    from tidemark.certificates import write_private

    if not name or "/" in name:
        raise ValueError(f"{name!r} is no name for a file")
    write_private(directory / f"{name}.pem", issued.key_pem() + issued.pem)
    write_private(directory / f"{name}.p12", issued.pkcs12(password))
    login = directory / f"{name}.password"
    if not login.exists():
        write_private(login, f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n".encode())
    return name


def _help(directory: Path) -> str:
    return f"""\
A broker with these settings speaks TLS (see docs/security.md):
  listeners: SSL://127.0.0.1:9093
  ssl.keystore.type: PEM
  ssl.keystore.location: {directory / "node.pem"}
  ssl.truststore.type: PEM
  ssl.truststore.location: {directory / "ca.pem"}
  ssl.client.auth: required            # if clients must show a certificate as well
A client connects with:
  tidemark topics list -b 127.0.0.1:9093 --tls-ca {directory / "ca.pem"} --tls-cert {directory / "client.pem"}"""
