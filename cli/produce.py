"""`tidemark produce`: records from standard input to a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from tidemark.cli import client, records, values
from tidemark.cli.options import add_topics, client_options, topics_of
from tidemark.cli.waiting import wait_until
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from confluent_kafka.admin import TopicMetadata

    from tidemark.cli.options import Subparsers

CREATION_WAIT_S = 5.0


def add_parser(commands: Subparsers, *, help: str) -> None:
    parser = commands.add_parser(
        "produce",
        parents=[client_options()],
        help=help,
        description="Write records to a topic: one per line of standard input, until its end.",
    )
    add_topics(parser, many=False)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-K", "--key-delimiter", metavar="TEXT", help="lines are KEY TEXT VALUE")
    form.add_argument(
        "--json",
        action="store_true",
        help="lines are JSON objects with any of key, value, headers, partition and timestamp, as consume --json "
        "prints them; a value of null is a tombstone",
    )
    parser.add_argument("-k", "--key", metavar="KEY", help="the key of every record that has none")
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        type=values.key_value,
        dest="headers",
        metavar="NAME=VALUE",
        help="a header for every record; may be repeated",
    )
    parser.add_argument(
        "-p", "--partition", type=values.partition_number, metavar="N", help="default: by key, or spread"
    )
    parser.add_argument(
        "-Z", "--empty-is-null", action="store_true", help="an empty value is null, that is, a tombstone"
    )
    parser.add_argument(
        "-z", "--compression", "--compression-codec", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none"
    )
    parser.add_argument("-a", "--acks", choices=["0", "1", "all"], default="all", help="default: all")
    parser.set_defaults(run=run, stdin_is_data=True)


def run(args: argparse.Namespace) -> int:
    [args.topic] = topics_of(args)
    handle = client.producer(
        args,
        compression_type=args.compression,
        acks=args.acks,
        linger_ms=5,
        partitioner="murmur2_random",  # Java's choice: a key goes where any other Kafka program would put it
        message_timeout_ms=int(max(args.timeout, 1.0) * 1000),
    )
    _require_topic(handle, args)
    deliveries = _Deliveries()
    try:
        for number, record in _read(sys.stdin.buffer, args):
            _send(handle, args, record, deliveries, number=number)
    finally:
        handle.flush()
    deliveries.raise_failure(args)
    return ExitCode.OK


class _Deliveries:
    """Counts the records that the cluster acknowledged and those that it refused."""

    def __init__(self) -> None:
        self.sent = 0
        self.refused = 0
        self.first_error: KafkaError | None = None

    def count(self, error: KafkaError | None, message: Message) -> None:
        self.sent += 1
        if error is not None:
            self.refused += 1
            self.first_error = self.first_error or error

    def raise_failure(self, args: argparse.Namespace) -> None:
        if self.first_error is None:
            return
        about = f"{self.refused} of {self.sent} records were not written to {args.topic}"
        raise client.failure(self.first_error, about=about, bootstrap=args.bootstrap)


def _read(source: IO[bytes], args: argparse.Namespace) -> Iterator[tuple[int, records.Record]]:
    delimiter = args.key_delimiter.encode() if args.key_delimiter else None
    for number, line in enumerate(source, start=1):
        content = line.removesuffix(b"\n").removesuffix(b"\r")
        if not args.json:
            yield number, records.from_text(content, delimiter=delimiter, empty_is_null=args.empty_is_null)
        elif content.strip():
            try:
                yield number, records.from_json(content)
            except records.BadLineError as error:
                raise CommandFailed(f"Line {number} of the input is no record: {error}.") from None


def _send(
    handle: Producer, args: argparse.Namespace, record: records.Record, deliveries: _Deliveries, *, number: int
) -> None:
    from confluent_kafka import KafkaException

    key = record.key if record.key is not None or args.key is None else args.key.encode()
    options: dict[str, Any] = {"headers": [*record.headers, *((name, text.encode()) for name, text in args.headers)]}
    partition = args.partition if args.partition is not None else record.partition
    if partition is not None:
        options["partition"] = partition
    if record.timestamp is not None:
        options["timestamp"] = record.timestamp
    while True:
        try:
            handle.produce(args.topic, record.value, key, on_delivery=deliveries.count, **options)
        except BufferError:  # the local queue is full: wait for deliveries to make room
            handle.poll(0.5)
            continue
        except KafkaException as error:
            about = f"Line {number} of the input cannot be written to {args.topic}"
            raise client.failure(error.args[0], about=about, bootstrap=args.bootstrap) from None
        handle.poll(0)
        return


def _require_topic(handle: Producer, args: argparse.Namespace) -> None:
    """Fail soon, and clearly, for a topic that does not exist and is not created on demand."""

    def find() -> TopicMetadata | None:
        topic = client.topic_metadata(handle, args, args.topic).get(args.topic)
        return topic if topic is not None and topic.error is None else None

    # Kafka answers "no such topic" to the very request that creates it.
    topic = wait_until(find, timeout_s=min(CREATION_WAIT_S, args.timeout), pause_s=0.1)
    if topic is None:
        message = f"Topic {args.topic}: it does not exist, and the cluster does not create it on demand."
        raise CommandFailed(message, code=ExitCode.NOT_FOUND)
    if args.partition is not None and args.partition not in topic.partitions:
        message = f"Topic {args.topic}: there is no partition {args.partition}; it has {len(topic.partitions)}."
        raise CommandFailed(message, code=ExitCode.NOT_FOUND)
