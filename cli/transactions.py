"""`tidemark transactions`: list and describe transactions, find the hanging ones and abort them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidemark.cli import values
from tidemark.cli.cluster_client import ClusterClient, TopicPartition, check
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidemark.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidemark.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tidemark.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers
    from tidemark.protocol.messages import list_transactions

HANGING_AFTER_MS = 900_000  # the default of transaction.max.timeout.ms


class OpenTransaction(NamedTuple):
    """A transaction without an end marker in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("transactions", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_list, _add_describe, _add_find_hanging, _add_abort):
        add(actions, client_options())


def _add_list(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("list", parents=[options], help="list transactional ids with their state")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        type=values.name,
        metavar="S",
        help="only in this state, such as Ongoing",
    )
    parser.add_argument(
        "--producer-id", action="append", default=[], type=values.int64, metavar="N", help="only this producer's"
    )
    parser.add_argument(
        "--longer-than-ms", type=values.int64, default=-1, metavar="N", help="only those that have run for longer"
    )
    parser.add_argument(
        "--pattern", type=values.name, metavar="RE2", help="only ids that match this regular expression"
    )
    add_json(parser)
    parser.set_defaults(run=list_)


def _add_describe(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "describe", parents=[options], help="show a transactional id's state at its coordinator"
    )
    parser.add_argument(
        "--id", "--transactional-id", required=True, type=values.name, dest="transactional_id", metavar="ID"
    )
    add_json(parser)
    parser.set_defaults(run=describe)


def _add_find_hanging(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "find-hanging", parents=[options], help="find open transactions that no coordinator is going to end"
    )
    parser.add_argument("--topic", type=values.topic, metavar="T", help="search this topic only")
    parser.add_argument(
        "--older-than-ms",
        type=values.int64,
        default=HANGING_AFTER_MS,
        metavar="N",
        help="leave out transactions with younger records (default: %(default)s)",
    )
    add_json(parser)
    parser.set_defaults(run=find_hanging)


def _add_abort(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("abort", parents=[options], help="abort a hanging transaction in one partition")
    parser.add_argument("--topic", required=True, type=values.topic, metavar="T")
    parser.add_argument("--partition", required=True, type=values.partition_number, metavar="N")
    parser.add_argument("--start-offset", type=values.int64, metavar="N", help="the offset of its first record")
    parser.add_argument("--producer-id", type=values.int64, metavar="N", help="or its producer's id")
    parser.set_defaults(run=abort)


def list_(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        found = [
            {
                "id": each.transactional_id,
                "coordinator": broker,
                "producer_id": each.producer_id,
                "state": each.transaction_state,
            }
            for broker, each in _listed(
                cluster,
                ListTransactionsRequest(
                    state_filters=args.state,
                    producer_id_filters=args.producer_id,
                    duration_filter=args.longer_than_ms,
                    transactional_id_pattern=args.pattern,
                ),
            )
        ]
    found.sort(key=lambda each: str(each["id"]))
    if args.json:
        print_json(found)
    elif found:
        print(table(("id", "coordinator", "producer id", "state"), [list(each.values()) for each in found]))
    return ExitCode.OK


def _listed(
    cluster: ClusterClient, request: ListTransactionsRequest
) -> Iterator[tuple[int, list_transactions.TransactionState]]:
    for broker in cluster.brokers:
        answer = cluster.call(broker, request, ListTransactionsResponse, 2)
        check(answer.error_code, "The transactions")
        if answer.unknown_state_filters:
            raise CommandFailed(
                f"There is no transaction state {', '.join(answer.unknown_state_filters)}.", code=ExitCode.USAGE
            )
        for each in answer.transaction_states:
            yield broker, each


def describe(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
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


def _described(cluster: ClusterClient, coordinator: int, transactional_id: str) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    [found] = cluster.call(coordinator, request, DescribeTransactionsResponse, 0).transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(f"{transactional_id}: there is no such transactional id.", code=ExitCode.NOT_FOUND)
    check(found.error_code, transactional_id)
    return found


def find_hanging(args: argparse.Namespace) -> int:
    now_ms = time.time_ns() // 1_000_000
    with ClusterClient(args) as cluster:
        wanted = [each for each in cluster.leaders if args.topic in (None, each[0])]
        if args.topic is not None and not wanted:
            raise CommandFailed(f"{args.topic}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
        old = [each for each in _open(cluster, wanted) if now_ms - each.last_timestamp >= args.older_than_ms]
        known = _known(cluster, {each.producer_id for each in old})
    hanging = [each for each in old if (each.topic, each.partition) not in known.get(each.producer_id, ())]
    if args.json:
        print_json([each._asdict() for each in hanging])
    elif hanging:
        print(table([name.replace("_", " ") for name in OpenTransaction._fields], hanging))
    return ExitCode.OK


def _known(cluster: ClusterClient, producer_ids: set[int]) -> dict[int, set[TopicPartition]]:
    """The partitions in which coordinators are going to end these producers' transactions."""
    if not producer_ids:
        return {}
    known = {}
    for broker, each in list(_listed(cluster, ListTransactionsRequest(producer_id_filters=sorted(producer_ids)))):
        found = _described(cluster, broker, each.transactional_id)
        known[each.producer_id] = {(topic.topic, index) for topic in found.topics for index in topic.partitions}
    return known


def _open(cluster: ClusterClient, partitions: list[TopicPartition]) -> Iterator[OpenTransaction]:
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, index in partitions:
        leader = cluster.leaders.get((topic, index), -1)
        if leader >= 0:
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
    for leader, topics in by_leader.items():
        asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        answer = cluster.call(leader, DescribeProducersRequest(topics=asked), DescribeProducersResponse, 0)
        for found in answer.topics:
            for partition in found.partitions:
                check(partition.error_code, f"{found.name}-{partition.partition_index}")
                for each in partition.active_producers:
                    if each.current_txn_start_offset >= 0:
                        yield OpenTransaction(
                            found.name,
                            partition.partition_index,
                            each.producer_id,
                            each.producer_epoch,
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                            each.last_timestamp,
                        )


def abort(args: argparse.Namespace) -> int:
    if (args.start_offset is None) == (args.producer_id is None):
        raise CommandFailed("Name the transaction: either --start-offset or --producer-id.", code=ExitCode.USAGE)
    with ClusterClient(args) as cluster:
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
            # -1: no coordinator has ended a transaction of this producer here yet, so that any epoch is accepted.
            coordinator_epoch=max(one.coordinator_epoch, 0),
            topics=[WritableTxnMarkerTopic(name=args.topic, partition_indexes=[args.partition])],
        )
        answer = cluster.call(leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, 1)
        check(answer.markers[0].topics[0].partitions[0].error_code, f"{args.topic}-{args.partition}")
    print(f"Aborted the transaction of producer {one.producer_id} in {args.topic}-{args.partition}.")
    return ExitCode.OK
