"""`tidemark groups`: list, describe and delete consumer groups, and reset what they committed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from tidemark.cli import client, reset_offsets
from tidemark.cli.failure import CommandFailed, ExitCode
from tidemark.cli.group_positions import HEADS, describe_group, exists, group_failure, no_such_group, positions
from tidemark.cli.output import print_json, table


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("groups", help="list, describe and delete consumer groups, and reset their offsets")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for add in (_add_list, _add_describe, reset_offsets.add_parser, _add_delete):
        add(actions, client.client_options())


def _add_list(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("list", parents=[options], help="list groups with their state")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=list_)


def _add_describe(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("describe", parents=[options], help="show members, offsets and lag")
    parser.add_argument("-g", "--group", required=True, metavar="G")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=describe)


def _add_delete(actions: Any, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser("delete", parents=[options], help="delete groups and what they committed")
    parser.add_argument("-g", "--group", required=True, action="append", dest="groups", metavar="G")
    parser.add_argument("--json", action="store_true", help="as JSON: each group, and why it could not be deleted")
    parser.set_defaults(run=delete)


def list_(args: argparse.Namespace) -> int:
    groups = [_listed(each) for each in all_groups(args)]
    if args.json:
        print_json(groups)
    elif groups:
        print(table(("group", "state", "type"), [(each["group"], each["state"], each["type"]) for each in groups]))
    return ExitCode.OK


def all_groups(args: argparse.Namespace) -> list[Any]:
    """Every group of the cluster, by name."""
    from confluent_kafka import KafkaException

    admin = client.admin(args)  # held while its future runs: it fails once it is gone
    try:
        found = admin.list_consumer_groups(request_timeout=args.timeout).result()
    except KafkaException as error:
        raise client.failure(error.args[0], about="The groups", bootstrap=args.bootstrap) from None
    if found.errors:
        raise client.failure(found.errors[0].args[0], about="The groups", bootstrap=args.bootstrap)
    return sorted(found.valid, key=lambda each: each.group_id)


def _listed(listing: Any) -> dict[str, Any]:
    return {
        "group": listing.group_id,
        "state": words(listing.state),
        "type": words(listing.type),
        "simple": listing.is_simple_consumer_group,
    }


def words(value: Any) -> str:
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


def _plain(described: Any) -> dict[str, Any]:
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


def _without_group(position: Any) -> dict[str, Any]:
    plain = asdict(position)
    del plain["group"]
    return plain


def delete(args: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException

    admin = client.admin(args)  # held while its futures run: they fail once it is gone
    failures: dict[str, CommandFailed] = {}
    for group, future in admin.delete_consumer_groups(args.groups, request_timeout=args.timeout).items():
        try:
            future.result()
        except KafkaException as error:
            failures[group] = group_failure(error, group, args)
    if args.json:
        print_json([_deleted(group, failures.get(group)) for group in args.groups])
    if failures:
        told = list(failures.values())
        raise CommandFailed("\ntidemark: ".join(map(str, told)), code=told[0].code)
    return ExitCode.OK


def _deleted(group: str, failure: CommandFailed | None) -> dict[str, Any]:
    return {"group": group, "deleted": failure is None, "error": None if failure is None else str(failure)}
