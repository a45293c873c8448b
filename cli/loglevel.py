"""`tidemark loglevel`: show and change what brokers write to their logs, while they run (KIP-412)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from tidemark.cli import values
from tidemark.cli.cluster_client import ClusterClient, check
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers

BROKER_LOGGER: Final = 8
SET, DELETE = 0, 1
LEVELS: Final = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "loglevel",
        parents=[client_options()],
        help=help,
        description="Without a level it shows the loggers whose names begin so (all, without a name). A level counts"
        " for the logger and those below it, until the broker stops. tidemark.requests at DEBUG tells every request.",
    )
    parser.add_argument("logger", nargs="?", default="", help="such as tidemark.requests, or root")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("level", nargs="?", type=str.upper, choices=LEVELS, help="the new level")
    change.add_argument("--reset", action="store_true", help="take its own level away: the one above it counts again")
    parser.add_argument("--broker", type=values.broker_id, metavar="ID", help="only of this broker (default: all)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.reset and not args.logger:
        raise CommandFailed("Which logger is to be reset?", code=ExitCode.USAGE)
    with ClusterClient(args) as cluster:
        if args.broker is not None and args.broker not in cluster.brokers:
            raise CommandFailed(f"There is no broker {args.broker}.", code=ExitCode.NOT_FOUND)
        brokers = [each for each in cluster.brokers if args.broker in (None, each)]
        if args.level is not None or args.reset:
            for broker in brokers:
                _change(cluster, broker, args.logger, args.level)
        found = {broker: _levels(cluster, broker, args.logger) for broker in brokers}
    if args.json:
        print_json({str(broker): levels for broker, levels in found.items()})
    else:
        rows = [(broker, name, level) for broker, levels in found.items() for name, level in levels.items()]
        print(table(["broker", "logger", "level"], rows))
    return ExitCode.OK


def _change(cluster: ClusterClient, broker: int, logger: str, level: str | None) -> None:
    change = AlterableConfig(name=logger, config_operation=DELETE if level is None else SET, value=level)
    resource = AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name=str(broker), configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [answer] = cluster.call(broker, request, IncrementalAlterConfigsResponse, 1).responses
    check(answer.error_code, f"Broker {broker}", answer.error_message)


def _levels(cluster: ClusterClient, broker: int, prefix: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name=str(broker), configuration_keys=None)
    [answer] = cluster.call(broker, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4).results
    check(answer.error_code, f"The loggers of broker {broker}", answer.error_message)
    return {each.name: each.value for each in answer.configs if each.name.startswith(prefix)}
