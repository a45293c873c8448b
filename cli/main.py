"""The `tidemark` command: one module per subcommand, loaded only when it is the one that was asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from tidemark.failure import CommandFailed, ExitCode

# A command's module has its name, with underscores. The help texts are here so that listing them loads nothing.
COMMANDS: Final = {
    "start": "start a broker",
    "topics": "create, list, describe, alter and delete topics",
    "produce": "write records to a topic",
    "consume": "read records of a topic",
    "groups": "list, describe and delete consumer groups, and reset their offsets",
    "lag": "show how far behind consumer groups are",
    "transactions": "list and describe transactions, find and abort hanging ones",
    "acls": "add, list, remove and explain access control entries",
    "log": "look into the files of a log, check and repair them, without a broker",
    "users": "create, list and delete users of SCRAM, and change their passwords",
    "quotas": "set, list and remove quotas of clients, and show who uses what",
    "cluster": "show the cluster's nodes and quorum, move partitions, remove brokers",
    "loglevel": "show and change the levels of brokers' loggers",
    "top": "a live screen of what brokers do: throughput, latency, lag, topics, clients, faults",
    "health": "ask a node whether it is ready for clients",
    "certs": "make throw-away certificates for development and tests",
    "format": "make a new cluster's first users, or let a node whose metadata is lost join again",
    "recover-quorum": "make a stopped node the only voter, when a majority of the voters is lost",
    "pipeline": "run data pipelines on Spark: topics in, tables and topics out",
}


MESSAGE_CHARACTERS_MAX: Final = 4000


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, or a list of all of them."""
    root = argparse.ArgumentParser(
        prog="tidemark",
        description="A Kafka-compatible broker, and a small client for it or for any Kafka cluster.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no broker reachable, 4 no such topic or group,"
        " 130 interrupted.",
    )
    root.add_argument("--version", action=_Version, help="show the version and exit")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        if command is None:
            commands.add_parser(name, help=text)
        elif name == command:
            module = importlib.import_module(f"tidemark.cli.{name.replace('-', '_')}")
            module.add_parser(commands, help=text)
    return root


def parse(argv: Sequence[str]) -> argparse.Namespace:
    # The root's own options end the program, so that a command can only be the first argument.
    return parser(argv[0] if argv and argv[0] in COMMANDS else None).parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    try:
        _refuse_broken_text(argv)
        args = parse(argv)
        code: int = args.run(args)
        sys.stdout.flush()
    except CommandFailed as failure:
        print(f"tidemark: {_clipped(str(failure))}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, say) has seen enough. Give the interpreter's last flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return code


def _clipped(message: str) -> str:
    """Messages repeat what was typed, which may be a whole file by mistake."""
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[:MESSAGE_CHARACTERS_MAX]} …"


def _refuse_broken_text(argv: Sequence[str]) -> None:
    for each in argv:
        try:
            each.encode()
        except UnicodeEncodeError:
            raise CommandFailed(f"An argument is not valid UTF-8: {each[:80]!a}.", code=ExitCode.USAGE) from None


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **rest: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help=str(rest["help"]))

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib.metadata import version  # slow, and only wanted here

        print(f"tidemark {version('tidemark')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
