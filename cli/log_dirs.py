"""The log directories of brokers: what is in them, and moving a replica from one to another (KIP-113)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemark.cli import values
from tidemark.cli.cluster_client import ClusterClient, check
from tidemark.cli.options import add_json, add_wait
from tidemark.cli.output import print_json, table
from tidemark.cli.progress import progress, size_text
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidemark.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidemark.wire_client import error_name

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers

POLL_S: Final = 0.2
LOG_DIR_NOT_FOUND: Final = 57
REPLICA_NOT_AVAILABLE: Final = 9
HEADS: Final = ["node", "directory", "state", "replicas", "size", "free", "coming"]


class Placed(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool  # on its way here


class Directory(NamedTuple):
    broker_id: int
    path: str
    error: str | None
    usable_bytes: int
    replicas: list[Placed]

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "replicas": [each._asdict() for each in self.replicas]}

    @property
    def row(self) -> list[object]:
        here = [each for each in self.replicas if not each.is_future]
        free = size_text(self.usable_bytes) if self.usable_bytes >= 0 else None
        size = size_text(sum(each.size_bytes for each in here))
        state = "up" if self.error is None else self.error
        return [self.broker_id, self.path, state, len(here), size, free, len(self.replicas) - len(here)]


def add_parsers(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("log-dirs", parents=[options], help="show the log directories of brokers")
    parser.add_argument("--broker", type=values.broker_id, metavar="ID", help="only of this broker")
    add_json(parser)
    parser.set_defaults(run=log_dirs)
    parser = actions.add_parser(
        "move-log",
        parents=[options],
        help="move a replica to another log directory of its broker",
        description="Moves a replica to another log directory of its broker. Clients notice nothing.",
    )
    parser.add_argument("--topic", type=values.topic, required=True, metavar="T")
    parser.add_argument("--partition", type=values.partition_number, required=True, metavar="N")
    parser.add_argument("--broker", type=values.broker_id, required=True, metavar="ID", help="whose replica it is")
    parser.add_argument("--to", required=True, metavar="DIR", help="the directory, as log.dirs of the broker names it")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the move has started")
    add_wait(parser)
    parser.set_defaults(run=move_log)


def log_dirs(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        if args.broker is not None and args.broker not in cluster.brokers:
            raise CommandFailed(f"There is no broker {args.broker}.", code=ExitCode.NOT_FOUND)
        found = [each for broker in cluster.brokers if args.broker in (None, broker) for each in of(cluster, broker)]
    if args.json:
        print_json([each.as_json() for each in found])
    else:
        print(table(HEADS, [each.row for each in found]))
    return ExitCode.OK


def of(cluster: ClusterClient, broker: int) -> Iterator[Directory]:
    answer = cluster.call(broker, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    check(answer.error_code, f"The log directories of broker {broker}")
    for each in sorted(answer.results, key=lambda each: each.log_dir):
        yield Directory(
            broker_id=broker,
            path=each.log_dir,
            error=error_name(each.error_code) if each.error_code else None,
            usable_bytes=each.usable_bytes,
            replicas=[
                Placed(topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
                for topic in each.topics
                for p in topic.partitions
            ],
        )


def move_log(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        if args.broker not in cluster.brokers:
            raise CommandFailed(f"There is no broker {args.broker}.", code=ExitCode.NOT_FOUND)
        _begin(cluster, args)
        if not args.no_wait:
            _await_move(cluster, args)
    print(f"{args.topic}-{args.partition} {'is moving to' if args.no_wait else 'is in'} {args.to}.")
    return ExitCode.OK


def _begin(cluster: ClusterClient, args: argparse.Namespace) -> None:
    wanted = AlterReplicaLogDirTopic(name=args.topic, partitions=[args.partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=args.to, topics=[wanted])])
    code = cluster.call(args.broker, request, AlterReplicaLogDirsResponse, 2).results[0].partitions[0].error_code
    if code == LOG_DIR_NOT_FOUND:
        raise CommandFailed(f"Broker {args.broker} has no log directory {args.to}.", code=ExitCode.NOT_FOUND)
    if code == REPLICA_NOT_AVAILABLE:
        reason = f"Broker {args.broker} has no replica of {args.topic}-{args.partition}."
        raise CommandFailed(reason, code=ExitCode.NOT_FOUND)
    check(code, f"{args.topic}-{args.partition}")


def _await_move(cluster: ClusterClient, args: argparse.Namespace) -> None:
    deadline = time.monotonic() + args.wait
    coming, here = _progress(cluster, args)
    with progress(here.size_bytes if here is not None else 0) as bar:
        copied = 0
        while coming is not None:
            bar.advance(max(coming.size_bytes - copied, 0), f"{args.topic}-{args.partition}")
            copied = max(coming.size_bytes, copied)
            if time.monotonic() > deadline:
                raise CommandFailed(f"It is still moving after {args.wait:g} s, and continues to.")
            time.sleep(POLL_S)
            coming, _ = _progress(cluster, args)
    found = _directory_of(cluster, args)
    if found is None or found.rstrip("/") != args.to.rstrip("/"):
        raise CommandFailed(f"It did not move: the log of broker {args.broker} says why.")


def _progress(cluster: ClusterClient, args: argparse.Namespace) -> tuple[Placed | None, Placed | None]:
    """The replica as far as it is copied, and as it is."""
    both = [each for directory in of(cluster, args.broker) for each in directory.replicas if _is_it(each, args)]
    coming = next((each for each in both if each.is_future), None)
    return coming, next((each for each in both if not each.is_future), None)


def _directory_of(cluster: ClusterClient, args: argparse.Namespace) -> str | None:
    holding = (
        directory.path
        for directory in of(cluster, args.broker)
        for each in directory.replicas
        if _is_it(each, args) and not each.is_future
    )
    return next(holding, None)


def _is_it(each: Placed, args: argparse.Namespace) -> bool:
    return (each.topic, each.partition) == (args.topic, args.partition)
