"""`tidemark groups`: list, describe and delete consumer groups, and reset what they committed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidemark.cli import client, reset_offsets, values
from tidemark.cli.group_positions import HEADS, describe_group, exists, group_failure, no_such_group, positions
from tidemark.cli.options import add_json, client_options
from tidemark.cli.output import print_json, table
from tidemark.failure import CommandFailed, ExitCode, all_failures

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription, ConsumerGroupListing

    from tidemark.cli.group_positions import GroupPosition
    from tidemark.cli.options import Subparsers


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser("groups", help=help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_list, _add_describe, reset_offsets.add_parser, _add_delete):
        add(actions, client_options())


def _add_list(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("list", parents=[options], help="list groups with their state")
    add_json(parser)
    parser.set_defaults(run=list_)


def _add_describe(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("describe", parents=[options], help="show members, offsets and lag")
    parser.add_argument("-g", "--group", required=True, type=values.name, metavar="G")
    add_json(parser)
    parser.set_defaults(run=describe)


def _add_delete(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("delete", parents=[options], help="delete groups and their committed offsets")
    parser.add_argument("-g", "--group", required=True, action="append", type=values.name, dest="groups", metavar="G")
    add_json(parser, help="print JSON: each group, and why it could not be deleted")
    parser.set_defaults(run=delete)


def list_(args: argparse.Namespace) -> int:
    groups = [_listed(each) for each in all_groups(args)]
    if args.json:
        print_json(groups)
    elif groups:
        print(table(("group", "state", "type"), [(each["group"], each["state"], each["type"]) for each in groups]))
    return ExitCode.OK


def all_groups(args: argparse.Namespace) -> list[ConsumerGroupListing]:
    """Every group of the cluster, by name."""
    from confluent_kafka import KafkaException

    admin = client.admin(args)  # kept: its future fails once it is collected
    try:
        found = admin.list_consumer_groups(request_timeout=args.timeout).result()
    except KafkaException as error:
        raise client.failure(error.args[0], about="The groups", bootstrap=args.bootstrap) from None
    for told in found.errors:  # exceptions, by the documentation, but 2.16 has the errors themselves here
        reason = told.args[0] if isinstance(told, KafkaException) else told
        raise client.failure(reason, about="The groups", bootstrap=args.bootstrap)
    return sorted(found.valid, key=lambda each: each.group_id)


def _listed(listing: ConsumerGroupListing) -> dict[str, Any]:
    return {
        "group": listing.group_id,
        "state": words(listing.state),
        "type": words(listing.type),
        "simple": listing.is_simple_consumer_group,
    }


def words(value: Enum | None) -> str:
    """PREPARING_REBALANCE as Kafka writes it: PreparingRebalance."""
    return value.name.title().replace("_", "") if value is not None else "-"


def describe(args: argparse.Namespace) -> int:
    admin = client.admin(args)
    described = describe_group(admin, args, args.group)
    if not exists(described):
        raise no_such_group(args.group)
    found = positions(admin, args, described)
    if args.json:
        print_json({**_plain(described), "partitions": [_without_group(each) for each in found]})
        return ExitCode.OK
    plain = _plain(described)
    count = len(plain["members"])
    print(f"{args.group}  {plain['state']}, {plain['type'].lower()}, {count} member{'s' * (count != 1)}", end="")
    print(f", {plain['assignor']} assigns" if plain["assignor"] else "")
    if found:
        print(table(HEADS, [each.row() for each in found]))
    idle = [member for member in plain["members"] if not member["partitions"]]
    if idle:
        print("without a partition:", ", ".join(member["member_id"] for member in idle))
    return ExitCode.OK


def _plain(described: ConsumerGroupDescription) -> dict[str, Any]:
    return {
        "group": described.group_id,
        "state": words(described.state),
        "type": words(described.type),
        "assignor": described.partition_assignor,
        "coordinator": described.coordinator.id if described.coordinator else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [f"{each.topic}-{each.partition}" for each in member.assignment.topic_partitions],
            }
            for member in described.members
        ],
    }


def _without_group(position: GroupPosition) -> dict[str, Any]:
    plain = asdict(position)
    del plain["group"]
    return plain


def delete(args: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException

    admin = client.admin(args)  # kept: its futures fail once it is collected
    failures: dict[str, CommandFailed] = {}
    for group, future in admin.delete_consumer_groups(args.groups, request_timeout=args.timeout).items():
        try:
            future.result()
        except KafkaException as error:
            failures[group] = group_failure(error, group, args)
    if args.json:
        print_json([_deleted(group, failures.get(group)) for group in args.groups])
    if failures:
        raise all_failures(failures.values())
    return ExitCode.OK


def _deleted(group: str, failure: CommandFailed | None) -> dict[str, Any]:
    return {"group": group, "deleted": failure is None, "error": None if failure is None else str(failure)}
