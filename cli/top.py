"""`tidemark top`: what brokers do at the moment, on a screen that is drawn again and again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark.cli import values
from tidemark.cli.http_client import default_url, get
from tidemark.cli.metrics_text import Scrape
from tidemark.cli.options import add_json, http_options
from tidemark.cli.output import print_json
from tidemark.cli.security import security_of
from tidemark.cli.top_figures import figures
from tidemark.cli.top_screen import screen
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers

METRICS_BYTES_MAX: Final = 64 << 20
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the other screen of the terminal, without a cursor
HOME, REST_OF_LINE, REST = "\x1b[H", "\x1b[K", "\x1b[J"


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "top",
        help=help,
        parents=[http_options()],
        description="A live screen of what brokers do, read from /metrics of their HTTP listeners. End it with Ctrl-C.",
    )
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help=f"HTTP listeners (default: $TIDEMARK_HTTP, or {default_url()})"
    )
    parser.add_argument(
        "--interval", type=values.seconds, default=2.0, metavar="S", help="seconds between two looks (default: 2)"
    )
    parser.add_argument("--rows", type=values.whole_number(least=1, most=1000), default=8, help="rows of each table")
    parser.add_argument("--once", action="store_true", help="print one screen, and end")
    add_json(parser, help="print one screen's figures as JSON, and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    urls = args.urls or [default_url()]
    if args.json or args.once or not sys.stdout.isatty():
        shown = _figures(urls, _scrapes(urls, args), args)
        print_json(shown) if args.json else print("\n".join(screen(shown, rows=args.rows)))
        return ExitCode.OK
    return _live(urls, args)


def _live(urls: Sequence[str], args: argparse.Namespace) -> int:
    before = _scrapes(urls, args)
    sys.stdout.write(f"{ENTER}{HOME}{REST}the first figures come in {args.interval:g} s")
    sys.stdout.flush()
    try:
        while True:
            time.sleep(args.interval)
            after = _scrapes(urls, args, must_answer=False)
            _draw(screen(figures(before, after), rows=args.rows))
            before = after
    except KeyboardInterrupt:
        return ExitCode.OK
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def _draw(lines: Sequence[str]) -> None:
    import shutil

    columns, rows = shutil.get_terminal_size()
    shown = [f"{line[:columns]}{REST_OF_LINE}" for line in lines[: rows - 1]]
    sys.stdout.write(HOME + "\r\n".join(shown) + "\r\n" + REST)
    sys.stdout.flush()


def _figures(urls: Sequence[str], before: dict[str, Scrape | None], args: argparse.Namespace) -> dict[str, Any]:
    time.sleep(args.interval)
    return figures(before, _scrapes(urls, args))


def _scrapes(urls: Sequence[str], args: argparse.Namespace, *, must_answer: bool = True) -> dict[str, Scrape | None]:
    """None for a node that does not answer. `must_answer`: one of them."""
    found: dict[str, Scrape | None] = {}
    failure: CommandFailed | None = None
    for url in urls:
        try:
            found[url] = _scrape(url, args)
        except CommandFailed as error:
            found[url], failure = None, error
    if must_answer and failure is not None and not any(found.values()):
        raise failure
    return found


def _scrape(url: str, args: argparse.Namespace) -> Scrape:
    status, body = get(
        url,
        "/metrics?clients=1",
        security=security_of(args),
        seconds_max=args.timeout,
        bytes_max=METRICS_BYTES_MAX,
        logs_in=True,
    )
    if status != 200:
        raise CommandFailed(f"{url} does not tell its metrics: it answers {status}.")
    return Scrape(body.decode(errors="replace"), at=time.monotonic())
