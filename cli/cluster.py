"""`tidemark cluster`: who is in it, what lacks replicas, moving partitions, taking a broker out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemark.cli import client
from tidemark.cli.cluster_view import Broker, Partition, View, look
from tidemark.cli.failure import CommandFailed, ExitCode
from tidemark.cli.moves import Move, away_from, cancel, move
from tidemark.cli.output import print_json, table
from tidemark.cli.throttles import throttle, unthrottle
from tidemark.cli.wire import Cluster

WAIT_DEFAULT_S = 600.0


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("cluster", help="show the cluster's nodes and quorum, move partitions, remove brokers")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_status, _add_under_replicated, _add_reassign, _add_give_vote, _add_decommission):
        add(actions, client.client_options())


def _add_status(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("status", parents=[options], help="nodes, racks, controller, quorum, partitions")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=status)


def _add_under_replicated(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "under-replicated",
        parents=[options],
        help="partitions that lack in-sync replicas or a leader",
        description="Lists partitions that lack in-sync replicas or a leader. The exit code is 1 if there are any.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=under_replicated)


def _add_reassign(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "reassign",
        parents=[options],
        help="move partitions to other brokers",
        description="Moves partitions to the brokers named; the first is their preferred leader. Data is copied before"
        " anything is removed.",
    )
    parser.add_argument("--topic", metavar="T", help="the topic to move")
    parser.add_argument("--partition", type=int, action="append", metavar="N", help="only this one; may be repeated")
    parser.add_argument("--to", type=_ids, metavar="ID,ID,…", help="the brokers that shall hold it")
    parser.add_argument("--file", type=Path, metavar="JSON", help="or a file in the format of Kafka's own tool")
    parser.add_argument("--cancel", action="store_true", help="stop moving, and go back to where it was")
    parser.add_argument(
        "--throttle",
        type=_rate,
        metavar="BYTES",
        help="copy at most so many bytes per second, from and to each broker; taken away when it is done",
    )
    parser.add_argument("--unthrottle", action="store_true", help="only take away a throttle that --no-wait left")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is done")
    parser.add_argument("--wait", type=client.positive_seconds, default=WAIT_DEFAULT_S, metavar="S", help="how long")
    parser.set_defaults(run=reassign)


def _add_give_vote(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "give-vote",
        parents=[options],
        help="let a broker vote on the metadata",
        description="Makes a broker that follows the metadata one of the voters of the quorum, once it has caught up.",
    )
    parser.add_argument("--broker", type=int, required=True, metavar="ID")
    parser.set_defaults(run=give_vote)


def _add_decommission(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "decommission",
        parents=[options],
        help="move everything off a broker, and forget it",
        description="Moves every replica off a broker and takes its vote. When it holds nothing, stop it and run the"
        " command again: the cluster forgets it.",
    )
    parser.add_argument("--broker", type=int, required=True, metavar="ID")
    parser.add_argument("--wait", type=client.positive_seconds, default=WAIT_DEFAULT_S, metavar="S", help="how long")
    parser.set_defaults(run=decommission)


def _rate(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes per second")
    return int(text)


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of broker ids") from None


# -- looking ---------------------------------------------------------------


def status(args: argparse.Namespace) -> int:
    with Cluster(args) as cluster:
        view = look(cluster)
    if args.json:
        print_json(view.plain())
        return ExitCode.OK
    lacking = list(_lacking(view))
    leaderless = [each for each in view.partitions if each.leader < 0]
    print(f"cluster {view.cluster_id}, controller {view.controller_id} in epoch {view.epoch}")
    print(
        f"{len(view.topics)} topic(s), {len(view.partitions)} partition(s): {len(lacking)} under-replicated,"
        f" {len(leaderless)} without a leader"
    )
    heads = ["node", "address", "rack", "state", "quorum", "lag", "leads", "replicas"]
    print(table(heads, [_row(view, broker) for broker in view.brokers]))
    return ExitCode.OK


def _row(view: View, broker: Broker) -> list[object]:
    led = sum(each.leader == broker.broker_id for each in view.partitions)
    held = sum(broker.broker_id in each.replicas for each in view.partitions)
    state = "fenced" if broker.is_fenced else "up"
    role = "leader" if broker.broker_id == view.quorum_leader_id else broker.quorum_role
    return [broker.broker_id, broker.address, broker.rack, state, role, broker.quorum_lag, led, held]


def under_replicated(args: argparse.Namespace) -> int:
    with Cluster(args) as cluster:
        view = look(cluster)
    lacking = list(_lacking(view))
    if args.json:
        print_json([each._asdict() for each in lacking])
    elif lacking:
        heads = ["topic", "partition", "leader", "replicas", "in sync", "eligible"]
        rows = [[e.topic, e.partition, "none" if e.leader < 0 else e.leader, e.replicas, e.isr, e.elr] for e in lacking]
        print(table(heads, rows))
    else:
        print(f"All {len(view.partitions)} partition(s) have all their replicas in sync.")
    return ExitCode.FAILED if lacking else ExitCode.OK


def _lacking(view: View) -> Iterator[Partition]:
    return (each for each in view.partitions if each.leader < 0 or len(each.isr) < len(each.replicas))


# -- moving ----------------------------------------------------------------


def reassign(args: argparse.Namespace) -> int:
    with Cluster(args) as cluster:
        view = look(cluster)
        moves = _wanted(args, view)
        if args.cancel or args.unthrottle:
            if args.cancel:
                cancel(cluster, moves)
                print(f"{len(moves)} partition(s) go back to where they were.")
            if args.unthrottle:
                unthrottle(cluster, moves)
                print("Nothing is throttled any more.")
            return ExitCode.OK
        if args.throttle is not None:
            throttle(cluster, view, moves, rate=args.throttle)
        move(cluster, moves, wait_s=0 if args.no_wait else args.wait)
        if args.throttle is not None and not args.no_wait:
            unthrottle(cluster, moves)
    print(f"{len(moves)} partition(s) {'are on their way' if args.no_wait else 'moved'}.")
    return ExitCode.OK


def _wanted(args: argparse.Namespace, view: View) -> list[Move]:
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
    to = args.to or []
    # The first broker leads: take turns, or all of a topic's partitions would be led by one.
    return [
        Move(each.topic, each.partition, to[k % len(to) :] + to[: k % len(to)] if to else [])
        for k, each in enumerate(chosen)
    ]


def _from_file(path: Path) -> list[Move]:
    try:
        wanted = json.loads(path.read_text())["partitions"]
        return [Move(str(each["topic"]), int(each["partition"]), [int(k) for k in each["replicas"]]) for each in wanted]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"{path}: {error}", code=ExitCode.USAGE) from None


def give_vote(args: argparse.Namespace) -> int:
    from tidemark.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

    with Cluster(args) as cluster:
        view = look(cluster)
        broker = next((each for each in view.brokers if each.broker_id == args.broker), None)
        if broker is None:
            raise CommandFailed(f"There is no broker {args.broker}.", code=ExitCode.NOT_FOUND)
        if broker.quorum_role == "voter":
            print(f"Broker {args.broker} has a vote already.")
            return ExitCode.OK
        wait_ms = int(args.timeout * 900)
        request = AddRaftVoterRequest(cluster_id=view.cluster_id, timeout_ms=wait_ms, voter_id=args.broker)
        answer = cluster.call(cluster.brokers[0], request, AddRaftVoterResponse, 1)
        if answer.error_code:
            raise CommandFailed(f"Broker {args.broker} gets no vote: {answer.error_message}")
    print(f"Broker {args.broker} has a vote in the quorum.")
    return ExitCode.OK


def decommission(args: argparse.Namespace) -> int:
    with Cluster(args) as cluster:
        view = look(cluster)
        broker = next((each for each in view.brokers if each.broker_id == args.broker), None)
        if broker is None:
            raise CommandFailed(f"There is no broker {args.broker}.", code=ExitCode.NOT_FOUND)
        moves = away_from(view, args.broker)
        move(cluster, moves, wait_s=args.wait)
        if moves:
            print(f"{len(moves)} partition(s) moved off broker {args.broker}.")
        if broker.quorum_role == "voter":
            _take_vote(cluster, view, args.broker)
        if not broker.is_fenced:
            print(f"Broker {args.broker} holds nothing any more. Stop it, and run this again to forget it.")
            return ExitCode.OK
        _unregister(cluster, args.broker)
    print(f"Broker {args.broker} is forgotten.")
    return ExitCode.OK


def _take_vote(cluster: Cluster, view: View, broker_id: int) -> None:
    from tidemark.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

    if sum(each.quorum_role == "voter" for each in view.brokers) == 1:
        raise CommandFailed(f"Broker {broker_id} is the only one with a vote; give another one first.")
    answer = cluster.call(
        cluster.another_than(broker_id),
        RemoveRaftVoterRequest(cluster_id=view.cluster_id, voter_id=broker_id),
        RemoveRaftVoterResponse,
        0,
    )
    if answer.error_code:
        raise CommandFailed(f"Taking the vote of broker {broker_id} failed: {answer.error_message}")
    print(f"Broker {broker_id} has no vote in the quorum any more.")


def _unregister(cluster: Cluster, broker_id: int) -> None:
    from tidemark.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = cluster.call(cluster.another_than(broker_id), request, UnregisterBrokerResponse, 0)
    if answer.error_code:
        raise CommandFailed(f"Forgetting broker {broker_id} failed: {answer.error_message}")
