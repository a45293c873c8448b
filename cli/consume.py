"""`tidemark consume`: records of a topic to standard output.

Without --group partitions are assigned with explicit offsets and nothing is committed: reading needs no coordinator and
moves no group's position. With it, this is one of the group's members, and what was printed is committed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidemark.cli import client, positions, records, values
from tidemark.cli.options import add_topics, client_options, topics_of
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import TopicMetadata

    from tidemark.cli.options import Subparsers

POLL_S = 0.2


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "consume",
        parents=[client_options()],
        help=help,
        description="Print the records of a topic, one per line: new ones only, unless an offset is given.",
    )
    add_topics(parser, many=False)
    parser.add_argument(
        "-p",
        "--partition",
        type=values.partition_number,
        action="append",
        dest="partitions",
        metavar="N",
        help="read only this partition; may be repeated",
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "-o",
        "--offset",
        type=positions.parse_position,
        default=positions.END,
        dest="position",
        metavar="WHERE",
        help="beginning, end, N (that offset), -N (the last N of each partition), or s@TIME (from a time on: "
        "milliseconds since 1970, or like 2030-01-31T12:00, in UTC)",
    )
    start.add_argument(
        "--from-beginning", action="store_const", const=positions.BEGINNING, dest="position", help="as -o beginning"
    )
    parser.add_argument(
        "-g",
        "--group",
        type=values.name,
        metavar="G",
        help="read as a member of this group: continue from its committed offsets, and commit what was printed. -o "
        "(beginning or end) applies to partitions without a committed offset",
    )
    parser.add_argument(
        "-n", "--count", "--max-messages", type=values.int64, metavar="N", help="stop after this many records"
    )
    parser.add_argument("-e", "--exit-at-end", action="store_true", help="stop when every partition is read to its end")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-K", "--key-delimiter", metavar="TEXT", help="print KEY TEXT VALUE")
    form.add_argument("--json", action="store_true", help="print one JSON object per record")
    parser.add_argument("-H", "--headers", action="store_true", help="print NAME=VALUE,… before each record")
    parser.add_argument(
        "--null", default="", metavar="TEXT", help="print this for a null key or value (default: nothing)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    [args.topic] = topics_of(args)
    if args.count == 0:
        return ExitCode.OK
    if args.group is not None:
        return _run_in_group(args)
    handle = client.consumer(
        args,
        group_id="tidemark-consume",  # the client insists on a name; no group of that name is joined
        enable_auto_commit="false",
        enable_auto_offset_store="false",
        enable_partition_eof="true",
        auto_offset_reset="error",
    )
    try:
        assignment = _assignment(handle, args)
        handle.assign(assignment)
        _print_until_done(handle, args, partitions={p.partition for p in assignment})
    finally:
        handle.close()
    return ExitCode.OK


def _run_in_group(args: argparse.Namespace) -> int:
    if args.partitions or args.position.kind not in ("beginning", "end"):
        message = "The group decides on partitions and offsets: -p and an offset cannot be given with --group."
        raise CommandFailed(message, code=ExitCode.USAGE)
    handle = client.consumer(
        args,
        group_id=args.group,
        enable_auto_offset_store="false",
        enable_partition_eof="true",
        auto_offset_reset="earliest" if args.position.kind == "beginning" else "latest",
    )
    owned: set[int] = set()
    try:
        _require_topic(handle, args)
        handle.subscribe(
            [args.topic],
            on_assign=lambda _, given: owned.update(each.partition for each in given),
            on_revoke=lambda _, taken: owned.difference_update(each.partition for each in taken),
        )
        _print_until_done(handle, args, partitions=owned)
    finally:
        sys.stdout.buffer.flush()
        handle.close()  # commits what was stored
    return ExitCode.OK


def _require_topic(handle: Consumer, args: argparse.Namespace) -> TopicMetadata:
    topic = client.topic_metadata(handle, args, args.topic).get(args.topic)
    if topic is None or topic.error is not None:
        raise CommandFailed(f"Topic {args.topic}: there is no such topic.", code=ExitCode.NOT_FOUND)
    return topic


def _assignment(handle: Consumer, args: argparse.Namespace) -> list[TopicPartition]:
    topic = _require_topic(handle, args)
    wanted = sorted(set(args.partitions or topic.partitions))
    for partition in wanted:
        if partition not in topic.partitions:
            message = f"Topic {args.topic}: there is no partition {partition}; it has {len(topic.partitions)}."
            raise CommandFailed(message, code=ExitCode.NOT_FOUND)
    return _positioned(handle, args, wanted)


def _positioned(handle: Consumer, args: argparse.Namespace, partitions: Sequence[int]) -> list[TopicPartition]:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

    where = args.position
    plain = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END, "offset": where.number}
    if where.kind in plain:
        return [TopicPartition(args.topic, partition, plain[where.kind]) for partition in partitions]
    try:
        if where.kind == "time":
            asked = [TopicPartition(args.topic, partition, where.number) for partition in partitions]
            return handle.offsets_for_times(asked, timeout=args.timeout)
        return [_from_end(handle, args, partition) for partition in partitions]
    except KafkaException as error:
        raise client.failure(error.args[0], about=f"Topic {args.topic}", bootstrap=args.bootstrap) from None


def _from_end(handle: Consumer, args: argparse.Namespace, partition: int) -> TopicPartition:
    from confluent_kafka import TopicPartition

    start, end = handle.get_watermark_offsets(TopicPartition(args.topic, partition), timeout=args.timeout)
    return TopicPartition(args.topic, partition, max(start, end - args.position.number))


def _print_until_done(handle: Consumer, args: argparse.Namespace, *, partitions: set[int]) -> None:
    out = sys.stdout.buffer
    at_end: set[int] = set()
    left = args.count
    while left is None or left > 0:
        message = handle.poll(0)
        if message is None:
            out.flush()  # no record is waiting: show what there is before waiting
            message = handle.poll(POLL_S)
        if message is None:
            continue
        if message.error() is not None:
            _note_event(message, args, at_end)
            if args.exit_at_end and at_end >= partitions:
                return
            continue
        at_end.discard(message.partition())
        out.write(_line(message, args) + b"\n")
        if args.group is not None:
            handle.store_offsets(message)
        left = None if left is None else left - 1


def _note_event(message: Any, args: argparse.Namespace, at_end: set[int]) -> None:
    from confluent_kafka import KafkaError

    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        at_end.add(message.partition())
    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
        place = f"partition {message.partition()} of {args.topic}"
        raise CommandFailed(f"The offset asked for is not in {place}: see `tidemark topics describe {args.topic}`.")
    elif message.topic() == args.topic and not error.retriable():
        raise client.failure(error, about=f"Topic {args.topic}", bootstrap=args.bootstrap)
    # The rest is about connections, which librdkafka makes again, or about a group coordinator, which is not needed.


def _line(message: Any, args: argparse.Namespace) -> bytes:
    headers = message.headers() or []
    if args.json:
        kind, timestamp = message.timestamp()
        return records.to_json(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp=timestamp if kind else None,
            key=message.key(),
            value=message.value(),
            headers=headers,
        ).encode()
    return records.to_text(
        key=message.key(),
        value=message.value(),
        headers=headers,
        delimiter=None if args.key_delimiter is None else args.key_delimiter.encode(),
        null=args.null.encode(),
        show_headers=args.headers,
    )
