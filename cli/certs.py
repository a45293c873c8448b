"""`tidemark certs`: throw-away certificates, so that TLS can be tried and tested in a minute."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.cli import values
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tidemark.certificates import Certificate
    from tidemark.cli.options import Subparsers

DAYS_MAX: Final = 3650
HOSTS: Final = "localhost,127.0.0.1,::1"


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
        " NAME.pem (key and certificate) and NAME.p12; ca.pem is what the other side trusts.",
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
    make.add_argument("--days", type=values.whole_number(least=1, most=DAYS_MAX), default=365, metavar="N")
    make.add_argument("--password", default="tidemark", metavar="TEXT", help="of the .p12 files (default: %(default)s)")
    make.set_defaults(run=run_make)


def run_make(args: argparse.Namespace) -> int:
    from tidemark.certificates import Authority, write_private

    directory: Path = args.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority.load(directory) if (directory / "ca.pem").exists() else Authority.make()
        write_private(directory / "ca.key", authority.key_pem)
        (directory / "ca.pem").write_bytes(authority.pem)
        for text in args.node or ["node"]:
            name, _, hosts = text.partition("=")
            issued = authority.issue(name, (hosts or HOSTS).split(","), days=args.days)
            _write(directory, name, issued, password=args.password)
        for name in args.client or ["client"]:
            issued = authority.issue(name, days=args.days)
            _write(directory, _file_name(name), issued, password=args.password)
    except OSError as error:
        raise CommandFailed(f"{error.filename or directory}: {error.strerror}.", code=ExitCode.USAGE) from None
    except ValueError as error:
        raise CommandFailed(f"{error}.".replace("..", "."), code=ExitCode.USAGE) from None
    print(_help(directory), file=sys.stderr)
    return ExitCode.OK


def _file_name(name: str) -> str:
    """Of CN=ann,OU=ops, the part that people know."""
    return name.partition(",")[0].removeprefix("CN=")


def _write(directory: Path, name: str, issued: Certificate, *, password: str) -> None:
    from tidemark.certificates import write_private

    if not name or "/" in name:
        raise ValueError(f"{name!r} is no name for a file")
    write_private(directory / f"{name}.pem", issued.key_pem() + issued.pem)
    write_private(directory / f"{name}.p12", issued.pkcs12(password))
    print(directory / f"{name}.pem")


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
