"""`tidemark topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tidemark.cli import client, values
from tidemark.cli.options import add_json, add_topics, client_options, topics_of
from tidemark.cli.output import print_json
from tidemark.cli.topic_description import describe_topics, text_of
from tidemark.failure import CommandFailed, ExitCode, all_failures

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("topics", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_create, _add_list, _add_describe, _add_alter, _add_delete):
        add(actions, client_options())


def _add_create(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("create", parents=[options], help="create topics")
    add_topics(parser, many=True)
    parser.add_argument(
        "-p", "--partitions", type=values.partition_count, default=-1, metavar="N", help="default: the cluster's"
    )
    parser.add_argument(
        "-r", "--replication-factor", type=values.replica_count, default=-1, metavar="N", help="default: the cluster's"
    )
    parser.add_argument(
        "--assign",
        "--replica-assignment",
        type=values.assignment,
        metavar="B:B,B:B,…",
        help="the brokers of each partition: commas between partitions, colons between brokers, leader first",
    )
    _add_configs(parser)
    parser.add_argument("--validate-only", action="store_true", help="check whether it would work, and create nothing")
    parser.add_argument("--if-not-exists", action="store_true", help="do not fail if a topic exists already")
    parser.set_defaults(run=create)


def _add_list(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("list", parents=[options], help="list topics, one name a line")
    add_json(parser, help="print JSON, with partition and replica counts")
    parser.set_defaults(run=list_)


def _add_describe(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("describe", parents=[options], help="show partitions, offsets and settings")
    add_topics(parser, many=True, required=False, help="default: all")
    parser.add_argument("--all-configs", action="store_true", help="also show settings that have their default value")
    add_json(parser)
    parser.set_defaults(run=describe)


def _add_alter(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("alter", parents=[options], help="change settings, or add partitions")
    add_topics(parser, many=False)
    parser.add_argument(
        "-p", "--partitions", type=values.partition_count, metavar="N", help="grow to this many partitions"
    )
    _add_configs(parser)
    parser.add_argument(
        "--delete-config",
        action="append",
        type=values.name,
        default=[],
        dest="deleted",
        metavar="KEY",
        help="reset a setting to its default; may be repeated",
    )
    parser.set_defaults(run=alter)


def _add_delete(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("delete", parents=[options], help="delete topics and all their records")
    add_topics(parser, many=True)
    parser.add_argument("--if-exists", action="store_true", help="do not fail if a topic does not exist")
    parser.set_defaults(run=delete)


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        type=values.key_value,
        dest="configs",
        metavar="KEY=VALUE",
        help="a setting of the topic, such as retention.ms=3600000; may be repeated",
    )


def create(args: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import NewTopic

    layout: dict[str, Any] = {"num_partitions": args.partitions, "replication_factor": args.replication_factor}
    if args.assign is not None:
        _refuse_counts_beside_assignment(args)
        layout = {"num_partitions": len(args.assign), "replica_assignment": args.assign}
    new = [NewTopic(name, config=dict(args.configs), **layout) for name in topics_of(args)]
    admin = client.admin(args)  # kept: its futures fail once it is collected
    futures = admin.create_topics(new, validate_only=args.validate_only, request_timeout=args.timeout)
    _raise_failures(futures, args, ignore=[KafkaError.TOPIC_ALREADY_EXISTS] if args.if_not_exists else [])
    return ExitCode.OK


def list_(args: argparse.Namespace) -> int:
    topics = client.topic_metadata(client.admin(args), args)
    if not args.json:
        for name in sorted(topics):
            print(name)
        return ExitCode.OK
    print_json(
        [
            {
                "name": name,
                "partitions": len(topics[name].partitions),
                "replication_factor": max((len(p.replicas) for p in topics[name].partitions.values()), default=0),
            }
            for name in sorted(topics)
        ]
    )
    return ExitCode.OK


def describe(args: argparse.Namespace) -> int:
    admin = client.admin(args)
    names = topics_of(args) or sorted(client.topic_metadata(admin, args))
    described = describe_topics(admin, args, names) if names else []
    if args.json:
        print_json(described)
    else:
        print("\n\n".join(text_of(topic) for topic in described))
    return ExitCode.OK


def alter(args: argparse.Namespace) -> int:
    if args.partitions is None and not args.configs and not args.deleted:
        raise CommandFailed("Nothing to alter: give --partitions, --config or --delete-config.", code=ExitCode.USAGE)
    [name] = topics_of(args)
    admin = client.admin(args)
    if args.configs or args.deleted:
        _alter_configs(admin, args, name)
    if args.partitions is not None:
        from confluent_kafka.admin import NewPartitions

        wanted = [NewPartitions(name, args.partitions)]
        _raise_failures(admin.create_partitions(wanted, request_timeout=args.timeout), args)
    return ExitCode.OK


def delete(args: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError

    admin = client.admin(args)  # kept: its futures fail once it is collected
    futures = admin.delete_topics(topics_of(args), request_timeout=args.timeout)
    _raise_failures(futures, args, ignore=[KafkaError.UNKNOWN_TOPIC_OR_PART] if args.if_exists else [])
    return ExitCode.OK


def _alter_configs(admin: AdminClient, args: argparse.Namespace, name: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in args.configs]
    changes += [ConfigEntry(k, None, incremental_operation=AlterConfigOpType.DELETE) for k in args.deleted]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    futures = admin.incremental_alter_configs([resource], request_timeout=args.timeout)
    [future] = futures.values()
    _raise_failures({name: future}, args)


def _raise_failures(
    futures: dict[str, Future[None]], args: argparse.Namespace, *, ignore: list[int] | None = None
) -> None:
    """Wait for every topic's outcome, then fail with all the failures: one bad name does not hide the others."""
    from confluent_kafka import KafkaException

    failures = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() not in (ignore or []):
                failures.append(client.failure(error.args[0], about=f"Topic {name}", bootstrap=args.bootstrap))
    if failures:
        raise all_failures(failures)


def _refuse_counts_beside_assignment(args: argparse.Namespace) -> None:
    if args.partitions != -1 or args.replication_factor != -1:
        message = "--assign already says how many partitions and replicas there are: leave the other two out."
        raise CommandFailed(message, code=ExitCode.USAGE)
