"""How commands connect: the files and options of `options.client_options`, as settings of a client."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tidemark.broker.config import ConfigError
from tidemark.broker.config.files import parse_properties
from tidemark.broker.config.jaas import parse_jaas
from tidemark.cli.passwords import read_password
from tidemark.client_security import ENCRYPTED, BadSecurity, ClientSecurity
from tidemark.failure import CommandFailed, ExitCode

PASSWORD_VARIABLE: Final = "TIDEMARK_PASSWORD"
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"


def security_of(args: argparse.Namespace) -> ClientSecurity:
    """What was asked for, from the weakest to the strongest word: the file, -X, the options. Found out once for a
    command, however many clients it has: it may have to ask for a password."""
    if not hasattr(args, "security"):
        args.security = _find(args)
    security: ClientSecurity = args.security
    return security


def _find(args: argparse.Namespace) -> ClientSecurity:
    given = {**_from_file(args.command_config), **dict(args.properties), **_from_options(args)}
    given.pop("bootstrap.servers", None)  # files for Kafka's tools often name them; the option is what counts
    try:
        return ClientSecurity(given)
    except BadSecurity as error:
        raise CommandFailed(str(error), code=ExitCode.USAGE) from None


def _without_jaas(given: dict[str, str]) -> dict[str, str]:
    """Java's clients have name and password in a line of their own."""
    line = given.pop("sasl.jaas.config", None)
    if line is not None:
        options = parse_jaas(line, key="sasl.jaas.config").options
        names = {"username": "sasl.username", "password": "sasl.password"}
        given |= {names[name]: value for name, value in options.items() if name in names}
    return given


def _from_file(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        return _without_jaas(parse_properties(path.read_text(encoding="utf-8")))
    except OSError as error:
        message = f"--command-config: {path} cannot be read: {error.strerror}."
        raise CommandFailed(message, code=ExitCode.USAGE) from None
    except (UnicodeDecodeError, ConfigError):
        raise CommandFailed(f"--command-config: {path} is no properties file.", code=ExitCode.USAGE) from None


def _from_options(args: argparse.Namespace) -> dict[str, str]:
    secure, login = _tls(args), _login(args)
    if not login:
        return secure
    given = {**_from_file(args.command_config), **dict(args.properties), **secure}
    is_encrypted = given.get("security.protocol", "").upper() in ENCRYPTED
    return {**secure, **login, "security.protocol": "SASL_SSL" if is_encrypted else "SASL_PLAINTEXT"}


def _login(args: argparse.Namespace) -> dict[str, str]:
    if args.user is None:
        return {}
    password = read_password(
        args.password_file,
        f"Password of {args.user}",
        variable=PASSWORD_VARIABLE,
        stdin_is_data=getattr(args, "stdin_is_data", False),
    )
    return {
        "sasl.mechanisms": args.mechanism or DEFAULT_MECHANISM,
        "sasl.username": args.user,
        "sasl.password": password,
    }


def _tls(args: argparse.Namespace) -> dict[str, str]:
    files = {"ssl.ca.location": args.tls_ca, "ssl.certificate.location": args.tls_cert}
    files["ssl.key.location"] = args.tls_key or args.tls_cert
    given = {name: str(path) for name, path in files.items() if path is not None}
    return {"security.protocol": "SSL", **given} if given else {}
