"""The `tidemark` command: one parser, one subcommand per module."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tidemark.cli import cluster, consume, groups, lag, pipeline, produce, recover_quorum, start, topics, transactions
from tidemark.cli.failure import CommandFailed, ExitCode

COMMANDS = (start, topics, produce, consume, groups, lag, transactions, cluster, recover_quorum, pipeline)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="tidemark",
        description="A Kafka-compatible broker, and a small client for it or for any Kafka cluster.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no broker reachable, 4 no such topic or group,"
        " 130 interrupted.",
    )
    root.add_argument("--version", action=_Version, help="show the version and exit")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except CommandFailed as failure:
        print(f"tidemark: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, say) has seen enough. Give the interpreter's last flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return code


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **rest: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help=str(rest["help"]))

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib.metadata import version  # slow, and only wanted here

        print(f"tidemark {version('tidemark')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
