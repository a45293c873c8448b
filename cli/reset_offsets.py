"""`tidemark groups reset-offsets`: change where a group continues. A dry run unless --execute is given."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from tidemark.cli import client, values
from tidemark.cli.group_positions import committed_offsets, describe_group, group_failure, offsets_at
from tidemark.cli.options import add_json
from tidemark.cli.output import print_json, table
from tidemark.cli.positions import milliseconds
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidemark.cli.options import Subparsers

Partition = tuple[str, int]
IDLE_STATES = ("EMPTY", "DEAD")


def add_parser(actions: Subparsers, options: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "reset-offsets",
        parents=[options],
        help="change the offsets that a group continues from",
        description="Shows what would change; --execute makes the change. The group must have no members meanwhile.",
    )
    parser.add_argument("-g", "--group", required=True, type=values.name, metavar="G")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "-t",
        "--topic",
        action="append",
        type=_topic,
        dest="topics",
        metavar="T[:P,P…]",
        help="a topic, or some of its partitions; may be repeated",
    )
    which.add_argument(
        "--all-topics", action="store_true", help="every partition that the group has committed offsets for"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="to the end")
    where.add_argument(
        "--to-offset", type=values.int64, metavar="N", help="to this offset, or the nearest one that exists"
    )
    where.add_argument(
        "--shift-by", type=values.signed_int64, metavar="N", help="by this many records, backwards if negative"
    )
    where.add_argument(
        "--to-datetime",
        type=milliseconds,
        metavar="D",
        help="to the first record of a time: an ISO date and time (UTC if it does not say), or milliseconds since 1970",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="make the change")
    mode.add_argument("--dry-run", action="store_true", help="only show what would change (the default)")
    add_json(parser)
    parser.set_defaults(run=reset)


def reset(args: argparse.Namespace) -> int:
    admin = client.admin(args)
    _refuse_if_active(admin, args)
    current = committed_offsets(admin, args, args.group)
    partitions = sorted(current) if args.all_topics else _partitions(admin, args)
    if not partitions:
        raise CommandFailed(f"Group {args.group} has committed nothing.", code=ExitCode.NOT_FOUND)
    wanted = _wanted(admin, args, partitions, current)
    if args.execute:
        _execute(admin, args, wanted)
    _show(args, wanted, current)
    return ExitCode.OK


def _refuse_if_active(admin: AdminClient, args: argparse.Namespace) -> None:
    described = describe_group(admin, args, args.group)
    if described.state.name not in IDLE_STATES:
        count = len(described.members)
        members = f"{count} member{'s' if count != 1 else ''}"
        raise CommandFailed(
            f"Group {args.group} is active ({members}): its offsets can be reset only while it has none. Stop it first."
        )


def _partitions(admin: AdminClient, args: argparse.Namespace) -> list[Partition]:
    topics = client.topic_metadata(admin, args)
    chosen: set[Partition] = set()
    for name, numbers in args.topics:
        if name not in topics:
            raise CommandFailed(f"Topic {name}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
        there = topics[name].partitions
        missing = [number for number in numbers if number not in there]
        if missing:
            message = f"Topic {name} has {len(there)} partition(s), and no partition {missing[0]}."
            raise CommandFailed(message, code=ExitCode.NOT_FOUND)
        chosen |= {(name, number) for number in numbers or there}
    return sorted(chosen)


def _wanted(
    admin: AdminClient, args: argparse.Namespace, partitions: list[Partition], current: dict[Partition, int]
) -> dict[Partition, int]:
    """The new offsets, none of them outside of what the partition holds."""
    from confluent_kafka.admin import OffsetSpec

    starts = offsets_at(admin, args, partitions, OffsetSpec.earliest())
    ends = offsets_at(admin, args, partitions, OffsetSpec.latest())
    if args.to_earliest:
        aims = starts
    elif args.to_latest:
        aims = ends
    elif args.to_offset is not None:
        aims = dict.fromkeys(partitions, args.to_offset)
    elif args.shift_by is not None:
        aims = {each: _shifted(args, each, current) for each in partitions}
    else:
        found = offsets_at(admin, args, partitions, OffsetSpec.for_timestamp(args.to_datetime))
        aims = {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}
    return {each: min(max(aims[each], starts[each]), ends[each]) for each in partitions if each in ends}


def _shifted(args: argparse.Namespace, partition: Partition, current: dict[Partition, int]) -> int:
    if partition not in current:
        name = f"{partition[0]}-{partition[1]}"
        raise CommandFailed(f"Group {args.group} has committed nothing for {name}: there is nothing to shift.")
    return current[partition] + int(args.shift_by)


def _execute(admin: AdminClient, args: argparse.Namespace, wanted: dict[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in wanted.items()]
    request = [ConsumerGroupTopicPartitions(args.group, offsets)]
    try:
        done = admin.alter_consumer_group_offsets(request, request_timeout=args.timeout)[args.group].result()
    except KafkaException as error:
        raise group_failure(error, args.group, args) from None
    for each in done.topic_partitions:
        if each.error is not None:
            raise client.failure(each.error, about=f"{each.topic}-{each.partition}", bootstrap=args.bootstrap)


def _show(args: argparse.Namespace, wanted: dict[Partition, int], current: dict[Partition, int]) -> None:
    rows = [(topic, number, current.get((topic, number)), offset) for (topic, number), offset in wanted.items()]
    if args.json:
        heads = ("topic", "partition", "current_offset", "new_offset")
        changes = [dict(zip(heads, row, strict=True)) for row in rows]
        print_json({"group": args.group, "executed": args.execute, "partitions": changes})
    else:
        print(table(("topic", "partition", "current offset", "new offset"), rows))
    if not args.execute:
        print("tidemark: nothing was changed; run it with --execute to make the change.", file=sys.stderr)


def _topic(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, numbers = text.partition(":")
    if not name or not re.fullmatch(r"([0-9]{1,9}(,[0-9]{1,9})*)?", numbers) or text.endswith(":"):
        raise argparse.ArgumentTypeError(f"{values.clipped(text)} is not a topic, or topic:0,1,2")
    return name, tuple(int(number) for number in numbers.split(",") if number)
