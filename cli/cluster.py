"""`tidemark cluster`: its nodes, partitions without all their replicas, moving partitions, removing a broker."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.cli import log_dirs, values
from tidemark.cli.cluster_client import ClusterClient, check
from tidemark.cli.cluster_state import Broker, ClusterState, Partition, describe_cluster
from tidemark.cli.http_client import get_json
from tidemark.cli.moves import Move, away_from, cancel, move
from tidemark.cli.options import add_json, add_wait, client_options
from tidemark.cli.output import print_json, table
from tidemark.cli.security import security_of
from tidemark.cli.throttles import throttle, unthrottle
from tidemark.failure import CommandFailed, ExitCode
from tidemark.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from tidemark.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tidemark.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("cluster", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    looking = (_add_status, _add_under_replicated, log_dirs.add_parsers)
    for add in (*looking, _add_reassign, _add_give_vote, _add_decommission):
        add(actions, client_options())


def _add_status(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "status",
        parents=[options],
        help="show nodes, controller, quorum and partitions",
        description="Shows nodes, controller, quorum and partitions. With --http the exit code is 0 if all nodes that"
        " were named are ready, 1 if one is not, 3 if one does not answer.",
    )
    parser.add_argument(
        "--http",
        action="append",
        default=[],
        metavar="URL",
        help="a node's HTTP listener, which is asked whether the node is ready; may be repeated",
    )
    add_json(parser)
    parser.set_defaults(run=status)


def _add_under_replicated(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "under-replicated",
        parents=[options],
        help="list partitions that lack in-sync replicas or a leader",
        description="Lists partitions that lack in-sync replicas or a leader. The exit code is 1 if there are any.",
    )
    add_json(parser)
    parser.set_defaults(run=under_replicated)


def _add_reassign(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "reassign",
        parents=[options],
        help="move partitions to other brokers",
        description="Moves partitions to the brokers named; the first is their preferred leader. Data is copied before"
        " anything is removed.",
    )
    parser.add_argument("--topic", type=values.topic, metavar="T", help="the topic to move")
    parser.add_argument(
        "--partition",
        type=values.partition_number,
        action="append",
        metavar="N",
        help="move only this partition; may be repeated",
    )
    parser.add_argument("--to", type=values.broker_ids, metavar="ID,ID,…", help="the brokers to move it to")
    parser.add_argument(
        "--file",
        "--reassignment-json-file",
        type=Path,
        metavar="JSON",
        help="or a file in the format of Kafka's own tool",
    )
    parser.add_argument("--cancel", action="store_true", help="stop the move, and keep the old replicas")
    parser.add_argument(
        "--throttle",
        type=values.bytes_per_second,
        metavar="BYTES",
        help="copy at most this many bytes per second, from and to each broker; removed when the move is done",
    )
    parser.add_argument("--unthrottle", action="store_true", help="only remove a throttle that --no-wait left")
    parser.add_argument("--no-wait", action="store_true", help="return as soon as the move has started")
    add_wait(parser)
    parser.set_defaults(run=reassign)


def _add_give_vote(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "give-vote",
        parents=[options],
        help="make a broker a voter of the metadata quorum",
        description="Makes a broker that follows the metadata a voter of the quorum, once it has caught up.",
    )
    parser.add_argument("--broker", type=values.broker_id, required=True, metavar="ID")
    parser.set_defaults(run=give_vote)


def _add_decommission(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "decommission",
        parents=[options],
        help="move everything off a broker, and unregister it",
        description="Moves every replica off a broker and removes it from the voters. When it holds nothing, stop it"
        " and run the command again: the cluster unregisters it.",
    )
    parser.add_argument("--broker", type=values.broker_id, required=True, metavar="ID")
    add_wait(parser)
    parser.set_defaults(run=decommission)


# -- showing ---------------------------------------------------------------


def status(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        view = describe_cluster(cluster)
        up = [each.broker_id for each in view.brokers if not each.is_fenced and each.broker_id in cluster.brokers]
        directories = [each for broker in up for each in log_dirs.of(cluster, broker)]
    readiness = _readiness(args)
    if args.json:
        places = {"log_dirs": [each.as_json() for each in directories]}
        print_json(view.as_json() | places | ({"readiness": readiness} if args.http else {}))
        return _tell_who_is_not_ready(readiness)
    lacking = list(_under_replicated(view))
    leaderless = [each for each in view.partitions if each.leader < 0]
    print(f"cluster {view.cluster_id}, controller {view.controller_id} in epoch {view.epoch}")
    print(
        f"{len(view.topics)} topic(s), {len(view.partitions)} partition(s): {len(lacking)} under-replicated,"
        f" {len(leaderless)} without a leader"
    )
    heads = ["node", "address", "rack", "state", "quorum", "lag", "leads", "replicas"]
    rows = [_row(view, broker) for broker in view.brokers]
    if args.http:
        told = {each["node_id"]: each["status"] for each in readiness if "node_id" in each}
        heads.append("ready")
        rows = [[*row, told.get(row[0], "not asked")] for row in rows]
    print(table(heads, rows))
    if len(directories) > len(up) or any(each.error for each in directories):
        print(table(log_dirs.HEADS, [each.row for each in directories]))
    return _tell_who_is_not_ready(readiness)


def _readiness(args: argparse.Namespace) -> list[dict[str, Any]]:
    """What each of the nodes that were named says of itself; of one that does not answer, that."""
    found = []
    for url in args.http:
        try:
            _, document = get_json(url, "/readyz", security=security_of(args), seconds_max=args.timeout)
            if not isinstance(document, dict) or not {"node_id", "status"} <= document.keys():
                raise CommandFailed(f"{url} does not answer: it is no node of Tidemark's.", code=ExitCode.NOT_REACHABLE)
            found.append({"url": url, **document})
        except CommandFailed as failure:
            if failure.code == ExitCode.USAGE:
                raise
            found.append({"url": url, "status": str(failure)})
    return found


def _tell_who_is_not_ready(readiness: list[dict[str, Any]]) -> ExitCode:
    """As `tidemark health` ends: with a code of its own if a node does not answer, another if one is not ready."""
    code = ExitCode.OK
    for each in readiness:
        if "node_id" not in each:
            code = ExitCode.NOT_REACHABLE
            print(f"tidemark: {each['status']}", file=sys.stderr)
        elif each["status"] != "ready":
            code = code or ExitCode.FAILED
            for name, finding in each.get("checks", {}).items():
                if finding != "ok":
                    print(f"tidemark: node {each['node_id']}: {name}: {finding}", file=sys.stderr)
    return code


def _row(view: ClusterState, broker: Broker) -> list[object]:
    led = sum(each.leader == broker.broker_id for each in view.partitions)
    held = sum(broker.broker_id in each.replicas for each in view.partitions)
    state = "fenced" if broker.is_fenced else "up"
    role = "leader" if broker.broker_id == view.quorum_leader_id else broker.quorum_role
    return [broker.broker_id, broker.address, broker.rack, state, role, broker.quorum_lag, led, held]


def under_replicated(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        view = describe_cluster(cluster)
    lacking = list(_under_replicated(view))
    if args.json:
        print_json([each._asdict() for each in lacking])
    elif lacking:
        heads = ["topic", "partition", "leader", "replicas", "in sync", "eligible"]
        rows = [[e.topic, e.partition, "none" if e.leader < 0 else e.leader, e.replicas, e.isr, e.elr] for e in lacking]
        print(table(heads, rows))
    else:
        print(f"All {len(view.partitions)} partition(s) have all their replicas in sync.")
    return ExitCode.FAILED if lacking else ExitCode.OK


def _under_replicated(view: ClusterState) -> Iterator[Partition]:
    return (each for each in view.partitions if each.leader < 0 or len(each.isr) < len(each.replicas))


# -- moving ----------------------------------------------------------------


def reassign(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        view = describe_cluster(cluster)
        moves = _moves(args, view)
        if args.cancel or args.unthrottle:
            if args.cancel:
                cancel(cluster, moves)
                print(f"{len(moves)} partition(s) keep their old replicas.")
            if args.unthrottle:
                unthrottle(cluster, moves)
                print("The throttle is removed.")
            return ExitCode.OK
        if args.throttle is not None:
            throttle(cluster, view, moves, rate=args.throttle)
        move(cluster, moves, wait_s=0 if args.no_wait else args.wait)
        if args.throttle is not None and not args.no_wait:
            unthrottle(cluster, moves)
    print(f"{len(moves)} partition(s) {'are moving' if args.no_wait else 'moved'}.")
    return ExitCode.OK


def _moves(args: argparse.Namespace, view: ClusterState) -> list[Move]:
    if args.file is not None:
        return _from_file(args.file)
    if args.topic is None or (args.to is None and not args.cancel and not args.unthrottle):
        raise CommandFailed("--topic and --to are needed, or --file.", code=ExitCode.USAGE)
    found = [each for each in view.partitions if each.topic == args.topic]
    if not found:
        raise CommandFailed(f"There is no topic {args.topic}.", code=ExitCode.NOT_FOUND)
    chosen = [each for each in found if args.partition is None or each.partition in args.partition]
    if not chosen:
        raise CommandFailed(f"{args.topic} has no such partition.", code=ExitCode.NOT_FOUND)
    # The first broker leads: they take turns, or one would lead all of the topic's partitions.
    return [Move(each.topic, each.partition, _rotated(args.to or [], by=k)) for k, each in enumerate(chosen)]


def _rotated(brokers: list[int], *, by: int) -> list[int]:
    start = by % len(brokers) if brokers else 0
    return brokers[start:] + brokers[:start]


def _from_file(path: Path) -> list[Move]:
    try:
        wanted = json.loads(path.read_text())["partitions"]
        return [_move_of(each) for each in wanted]
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}.", code=ExitCode.USAGE) from None
    except (ValueError, KeyError, TypeError, RecursionError, argparse.ArgumentTypeError) as error:
        raise CommandFailed(f"{path} is no file of partitions to move: {error}.", code=ExitCode.USAGE) from None


def _move_of(entry: dict[str, Any]) -> Move:
    partition, *replicas = [values.broker_id(str(number)) for number in (entry["partition"], *entry["replicas"])]
    return Move(values.topic(str(entry["topic"])), partition, replicas)


def give_vote(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        view = describe_cluster(cluster)
        broker = _broker(view, args.broker)
        if broker.quorum_role == "voter":
            print(f"Broker {args.broker} is a voter already.")
            return ExitCode.OK
        wait_ms = int(args.timeout * 900)
        request = AddRaftVoterRequest(cluster_id=view.cluster_id, timeout_ms=wait_ms, voter_id=args.broker)
        answer = cluster.call(cluster.brokers[0], request, AddRaftVoterResponse, 1)
        check(answer.error_code, f"Broker {args.broker} does not become a voter", answer.error_message)
    print(f"Broker {args.broker} is a voter of the quorum.")
    return ExitCode.OK


def _broker(view: ClusterState, broker_id: int) -> Broker:
    for each in view.brokers:
        if each.broker_id == broker_id:
            return each
    raise CommandFailed(f"There is no broker {broker_id}.", code=ExitCode.NOT_FOUND)


def decommission(args: argparse.Namespace) -> int:
    with ClusterClient(args) as cluster:
        view = describe_cluster(cluster)
        broker = _broker(view, args.broker)
        moves = away_from(view, args.broker)
        move(cluster, moves, wait_s=args.wait)
        if moves:
            print(f"{len(moves)} partition(s) moved off broker {args.broker}.")
        if broker.quorum_role == "voter":
            _remove_voter(cluster, view, args.broker)
        if not broker.is_fenced:
            print(f"Broker {args.broker} holds nothing any more. Stop it, and run this again to unregister it.")
            return ExitCode.OK
        _unregister(cluster, args.broker)
    print(f"Broker {args.broker} is unregistered.")
    return ExitCode.OK


def _remove_voter(cluster: ClusterClient, view: ClusterState, broker_id: int) -> None:
    if sum(each.quorum_role == "voter" for each in view.brokers) == 1:
        raise CommandFailed(f"Broker {broker_id} is the only voter: make another broker a voter first.")
    answer = cluster.call(
        cluster.broker_beside(broker_id),
        RemoveRaftVoterRequest(cluster_id=view.cluster_id, voter_id=broker_id),
        RemoveRaftVoterResponse,
        0,
    )
    check(answer.error_code, f"Broker {broker_id} cannot be removed from the voters", answer.error_message)
    print(f"Broker {broker_id} is no voter of the quorum any more.")


def _unregister(cluster: ClusterClient, broker_id: int) -> None:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = cluster.call(cluster.broker_beside(broker_id), request, UnregisterBrokerResponse, 0)
    check(answer.error_code, f"Broker {broker_id} cannot be unregistered", answer.error_message)
