"""The options that commands share. Where Kafka's own tools spell one differently, both spellings are taken."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemark.cli import values

if TYPE_CHECKING:
    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_WAIT_S: Final = 600.0


def client_options() -> argparse.ArgumentParser:
    """The options of every command that talks to a cluster, as a parent of its parser."""
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        "--bootstrap-servers",
        default=os.environ.get("TIDEMARK_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,…",
        help="brokers to ask first (default: $TIDEMARK_BOOTSTRAP, or %(default)s)",
    )
    _add_connection(group)
    return options


def http_options() -> argparse.ArgumentParser:
    """The options of commands that ask HTTP listeners, as a parent of their parser."""
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("connection")
    _add_connection(group)
    return options


def _add_connection(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-X",
        action="append",
        default=[],
        type=values.key_value,
        dest="properties",
        metavar="PROP=VALUE",
        help="a librdkafka property, such as acks=1 or security.protocol=SSL; may be repeated",
    )
    group.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a properties file for the connection, by Java's or librdkafka's names; -X and the options below win",
    )
    group.add_argument("--user", metavar="NAME", help="log in by SASL as this user")
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="the user's password; without it $TIDEMARK_PASSWORD counts, or it is asked for",
    )
    group.add_argument("--mechanism", metavar="NAME", help="how to log in (default: SCRAM-SHA-512)")
    group.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="connect with TLS, and trust these certificates (PEM)"
    )
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="our own certificate (PEM), where one is required")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, if that is in a file of its own")
    group.add_argument(
        "--timeout",
        type=values.seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds to wait for an answer (default: 10)",
    )


def add_json(parser: argparse.ArgumentParser, *, help: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_topics(parser: argparse.ArgumentParser, *, many: bool, required: bool = True, help: str | None = None) -> None:
    """Topics by position, as in `describe orders`, or by option, as in `describe --topic orders`; see `topics_of`."""
    parser.add_argument("topics", nargs="*" if many else "?", type=values.topic, metavar="TOPIC", help=help)
    parser.add_argument(
        "--topic",
        "--name",
        action="append",
        default=[],
        type=values.topic,
        dest="more_topics",
        metavar="TOPIC",
        help="the same, as Kafka's own tools spell it",
    )
    parser.set_defaults(topics_max=None if many else 1, topics_required=required, usage_error=parser.error)


def topics_of(args: argparse.Namespace) -> list[str]:
    """The topics that were named in either way."""
    by_position: Sequence[str] = args.topics if isinstance(args.topics, list) else [args.topics or ""]
    topics = [each for each in (*by_position, *args.more_topics) if each]
    if args.topics_required and not topics:
        args.usage_error("the following arguments are required: TOPIC")
    if args.topics_max is not None and len(topics) > args.topics_max:
        args.usage_error("only one topic can be named")
    return topics


def add_broker_settings(parser: argparse.ArgumentParser, *, file_help: str) -> None:
    """--config and --set, as every command takes them that runs on a broker's own settings."""
    parser.add_argument("--config", type=Path, metavar="FILE", help=file_help)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting that wins over the file; may be repeated",
    )


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=values.seconds,
        default=DEFAULT_WAIT_S,
        metavar="S",
        help="seconds to wait until the data is copied (default: %(default)g)",
    )
