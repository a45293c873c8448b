"""`tidemark transactions`: what is open, what hangs, and how to end that."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tidemark.cli import client
from tidemark.cli.failure import CommandFailed, ExitCode
from tidemark.cli.output import print_json, table
from tidemark.cli.wire import Cluster, check

HANGING_AFTER_MS = 900_000  # transaction.max.timeout.ms, unless somebody changed it


class Open(NamedTuple):
    """A transaction that a partition waits for."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("transactions", help="list and describe transactions, find and abort hanging ones")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_list, _add_describe, _add_find_hanging, _add_abort):
        add(actions, client.client_options())


def _add_list(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("list", parents=[options], help="list transactional ids with their state")
    parser.add_argument("--state", action="append", default=[], metavar="S", help="only in this state, such as Ongoing")
    parser.add_argument("--producer-id", action="append", default=[], type=int, metavar="N", help="only of this one")
    parser.add_argument("--longer-than-ms", type=int, default=-1, metavar="N", help="only what has run for longer")
    parser.add_argument("--pattern", metavar="RE2", help="only ids that match this regular expression")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=list_)


def _add_describe(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("describe", parents=[options], help="show what a coordinator knows of an id")
    parser.add_argument("--id", required=True, dest="transactional_id", metavar="ID")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=describe)


def _add_find_hanging(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "find-hanging", parents=[options], help="find transactions that partitions wait for and no coordinator knows"
    )
    parser.add_argument("--topic", metavar="T", help="look at this topic only")
    parser.add_argument(
        "--older-than-ms",
        type=int,
        default=HANGING_AFTER_MS,
        metavar="N",
        help="leave out what was written to since (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=find_hanging)


def _add_abort(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("abort", parents=[options], help="abort a hanging transaction in one partition")
    parser.add_argument("--topic", required=True, metavar="T")
    parser.add_argument("--partition", required=True, type=int, metavar="N")
    parser.add_argument("--start-offset", type=int, metavar="N", help="where the transaction begins")
    parser.add_argument("--producer-id", type=int, metavar="N", help="or whose it is")
    parser.set_defaults(run=abort)


def list_(args: argparse.Namespace) -> int:
    with Cluster(args) as cluster:
        found = [
            {
                "id": each.transactional_id,
                "coordinator": broker,
                "producer_id": each.producer_id,
                "state": each.transaction_state,
            }
            for broker, each in _listed(
                cluster,
                state_filters=args.state,
                producer_id_filters=args.producer_id,
                duration_filter=args.longer_than_ms,
                transactional_id_pattern=args.pattern,
            )
        ]
    found.sort(key=lambda each: str(each["id"]))
    if args.json:
        print_json(found)
    elif found:
        print(table(("id", "coordinator", "producer id", "state"), [list(each.values()) for each in found]))
    return ExitCode.OK


def _listed(cluster: Cluster, **filters: Any) -> Iterator[tuple[int, Any]]:
    from tidemark.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

    for broker in cluster.brokers:
        answer = cluster.call(broker, ListTransactionsRequest(**filters), ListTransactionsResponse, 2)
        check(answer.error_code, "The transactions")
        if answer.unknown_state_filters:
            raise CommandFailed(
                f"There is no transaction state {', '.join(answer.unknown_state_filters)}.", code=ExitCode.USAGE
            )
        for each in answer.transaction_states:
            yield broker, each


def describe(args: argparse.Namespace) -> int:
    with Cluster(args) as cluster:
        coordinator = cluster.coordinator_of(args.transactional_id)
        found = _described(cluster, coordinator, args.transactional_id)
    partitions = [f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions]
    shown = {
        "id": args.transactional_id,
        "coordinator": coordinator,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "start_ms": found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        "partitions": partitions,
    }
    if args.json:
        print_json(shown)
    else:
        print(table(list(shown), [list(shown.values())]))
    return ExitCode.OK


def _described(cluster: Cluster, coordinator: int, transactional_id: str) -> Any:
    from tidemark.protocol.errors import ErrorCode
    from tidemark.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    [found] = cluster.call(coordinator, request, DescribeTransactionsResponse, 0).transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(f"{transactional_id}: there is no such transactional id.", code=ExitCode.NOT_FOUND)
    check(found.error_code, transactional_id)
    return found


def find_hanging(args: argparse.Namespace) -> int:
    now_ms = time.time_ns() // 1_000_000
    with Cluster(args) as cluster:
        wanted = [each for each in cluster.partitions if args.topic in (None, each[0])]
        if args.topic is not None and not wanted:
            raise CommandFailed(f"{args.topic}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
        old = [each for each in _open(cluster, wanted) if now_ms - each.last_timestamp >= args.older_than_ms]
        known = _known(cluster, {each.producer_id for each in old})
    hanging = [each for each in old if (each.topic, each.partition) not in known.get(each.producer_id, ())]
    if args.json:
        print_json([each._asdict() for each in hanging])
    elif hanging:
        print(table([name.replace("_", " ") for name in Open._fields], hanging))
    return ExitCode.OK


def _known(cluster: Cluster, producer_ids: set[int]) -> dict[int, set[tuple[str, int]]]:
    """The partitions that coordinators are going to end these producers' transactions in."""
    if not producer_ids:
        return {}
    known = {}
    for broker, each in list(_listed(cluster, producer_id_filters=sorted(producer_ids))):
        found = _described(cluster, broker, each.transactional_id)
        known[each.producer_id] = {(topic.topic, index) for topic in found.topics for index in topic.partitions}
    return known


def _open(cluster: Cluster, partitions: list[tuple[str, int]]) -> Iterator[Open]:
    from tidemark.protocol.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        TopicRequest,
    )

    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, index in partitions:
        leader = cluster.partitions.get((topic, index), -1)
        if leader >= 0:
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
    for leader, topics in by_leader.items():
        asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        answer = cluster.call(leader, DescribeProducersRequest(topics=asked), DescribeProducersResponse, 0)
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, f"{topic.name}-{partition.partition_index}")
                for each in partition.active_producers:
                    if each.current_txn_start_offset >= 0:
                        yield Open(
                            topic.name,
                            partition.partition_index,
                            each.producer_id,
                            each.producer_epoch,
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                            each.last_timestamp,
                        )


def abort(args: argparse.Namespace) -> int:
    from tidemark.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    if (args.start_offset is None) == (args.producer_id is None):
        raise CommandFailed("Say which one: either --start-offset or --producer-id.", code=ExitCode.USAGE)
    with Cluster(args) as cluster:
        leader = cluster.leader_of(args.topic, args.partition)
        found = [
            each
            for each in _open(cluster, [(args.topic, args.partition)])
            if args.producer_id == each.producer_id or args.start_offset == each.start_offset
        ]
        if not found:
            where = f"{args.topic}-{args.partition}"
            raise CommandFailed(f"{where} has no such open transaction.", code=ExitCode.NOT_FOUND)
        [one] = found
        marker = WritableTxnMarker(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            transaction_result=False,
            # -1: no coordinator has ended a transaction of this producer here yet, so that any epoch will do.
            coordinator_epoch=max(one.coordinator_epoch, 0),
            topics=[WritableTxnMarkerTopic(name=args.topic, partition_indexes=[args.partition])],
        )
        answer = cluster.call(leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, 1)
        check(answer.markers[0].topics[0].partitions[0].error_code, f"{args.topic}-{args.partition}")
    print(f"Aborted the transaction of producer {one.producer_id} in {args.topic}-{args.partition}.")
    return ExitCode.OK
