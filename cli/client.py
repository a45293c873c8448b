"""librdkafka's clients, made from the options of a command, and librdkafka's errors as sentences.

confluent_kafka is imported inside functions, so that `--help` and wrong usage do not wait for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.cli.security import security_of
from tidemark.failure import CommandFailed, ExitCode
from tidemark.wire_client import (
    Address,
    BadAddress,
    LoginFailed,
    NoAnswer,
    parse_addresses,
    require_handshake,
    require_open_port,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

DEFAULT_PORT: Final = 9092

T = TypeVar("T")


def admin(args: argparse.Namespace) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return _connect(AdminClient, args)


def producer(args: argparse.Namespace, **settings: str | int) -> Producer:
    from confluent_kafka import Producer

    return _connect(Producer, args, **settings)


def consumer(args: argparse.Namespace, **settings: str | int) -> Consumer:
    from confluent_kafka import Consumer

    return _connect(Consumer, args, **settings)


def _connect(kind: Callable[[dict[str, Any]], T], args: argparse.Namespace, **settings: str | int) -> T:
    from confluent_kafka import KafkaException

    _require_broker(args)
    wanted = {name.replace("_", "."): value for name, value in settings.items()}
    quiet = {"log_level": 0, "error_cb": lambda error: None}  # what matters comes back from the calls
    try:
        return kind({"bootstrap.servers": args.bootstrap, **quiet, **wanted, **security_of(args).settings})
    except KafkaException as error:  # a property that librdkafka does not know, or a value that it refuses
        raise CommandFailed(f"{sentence(error.args[0].str())}", code=ExitCode.USAGE) from None


def _require_broker(args: argparse.Namespace) -> None:
    """librdkafka tries for ever, in silence; what stands in the way is told at once."""
    addresses, security = bootstrap_addresses(args.bootstrap), security_of(args)
    try:
        require_open_port(addresses, timeout_s=args.timeout)
        if security.is_encrypted or security.login is not None:
            require_handshake(addresses, security, timeout_s=args.timeout)
    except LoginFailed as reason:
        raise CommandFailed(sentence(f"{args.bootstrap} refused the login: {reason}")) from None
    except NoAnswer as reason:
        message = f"No broker is reachable at {args.bootstrap}: {reason}."
        raise CommandFailed(message, code=ExitCode.NOT_REACHABLE) from None


def bootstrap_addresses(bootstrap: str) -> list[Address]:
    try:
        return parse_addresses(bootstrap, default_port=DEFAULT_PORT)
    except BadAddress as error:
        raise CommandFailed(f"--bootstrap: {error}.", code=ExitCode.USAGE) from None


def failure(error: KafkaError, *, about: str, bootstrap: str) -> CommandFailed:
    """What a KafkaError means to the person who ran the command."""
    from confluent_kafka import KafkaError as E

    if error.code() in (E._TRANSPORT, E._ALL_BROKERS_DOWN, E._RESOLVE, E._TIMED_OUT):
        message = (
            f"{bootstrap} accepts connections but did not answer as a Kafka broker in time."
            " (If it speaks TLS or asks for a login: --tls-ca, --user.)"
        )
        return CommandFailed(message, code=ExitCode.NOT_REACHABLE)
    if error.code() in (E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_TOPIC, E._UNKNOWN_PARTITION, E.UNKNOWN_TOPIC_ID):
        return CommandFailed(f"{about}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
    return CommandFailed(f"{about}: {sentence(error.str())} ({error.name()})")


def sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def topic_metadata(
    handle: AdminClient | Consumer | Producer, args: argparse.Namespace, topic: str | None = None
) -> dict[str, TopicMetadata]:
    """The cluster's topics by name, or one of them (which makes a cluster create it that does so on demand)."""
    from confluent_kafka import KafkaException

    try:
        found: ClusterMetadata = handle.list_topics(topic=topic, timeout=args.timeout)
    except KafkaException as error:
        raise failure(error.args[0], about="The cluster", bootstrap=args.bootstrap) from None
    return found.topics
