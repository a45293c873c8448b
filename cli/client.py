"""Talking to a cluster: the options that every client command has, and librdkafka's errors as sentences.

confluent_kafka is imported inside functions, so that `tidemark start` and `--help` do not wait for it.
"""

from __future__ import annotations

import argparse
import os
import socket
from typing import TYPE_CHECKING, Any

from tidemark.cli.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
DEFAULT_TIMEOUT_S = 10.0


def client_options() -> argparse.ArgumentParser:
    """The options of every command that talks to a cluster, to be a parent of its parser."""
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap",
        default=os.environ.get("TIDEMARK_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,…",
        help="brokers to ask first (default: $TIDEMARK_BOOTSTRAP, or %(default)s)",
    )
    group.add_argument(
        "-X",
        action="append",
        default=[],
        type=key_value,
        dest="properties",
        metavar="PROP=VALUE",
        help="a librdkafka property, such as acks=1 or security.protocol=SSL; may be repeated",
    )
    group.add_argument(
        "--timeout",
        type=positive_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds to wait for an answer (default: 10)",
    )
    return options


def key_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value


def positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def admin(args: argparse.Namespace) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    handle: AdminClient = _connect(AdminClient, args)
    return handle


def producer(args: argparse.Namespace, **settings: Any) -> Producer:
    from confluent_kafka import Producer

    handle: Producer = _connect(Producer, args, **settings)
    return handle


def consumer(args: argparse.Namespace, **settings: Any) -> Consumer:
    from confluent_kafka import Consumer

    handle: Consumer = _connect(Consumer, args, **settings)
    return handle


def _connect(kind: Any, args: argparse.Namespace, **settings: Any) -> Any:
    from confluent_kafka import KafkaException

    require_open_port(args.bootstrap, timeout_s=args.timeout)
    wanted = {name.replace("_", "."): value for name, value in settings.items()}
    quiet = {"log_level": 0, "error_cb": lambda error: None}  # what matters comes back from the calls
    try:
        return kind({"bootstrap.servers": args.bootstrap, **quiet, **wanted, **dict(args.properties)})
    except KafkaException as error:  # a property that librdkafka does not know, or a value that it refuses
        raise CommandFailed(f"{sentence(error.args[0].str())}", code=ExitCode.USAGE) from None


def require_open_port(bootstrap: str, *, timeout_s: float) -> None:
    """Fail at once, with the system's reason, where no address accepts connections; librdkafka would try in silence."""
    reasons = []
    for address in bootstrap.split(","):
        host, port = split_address(address.strip())
        try:
            socket.create_connection((host, port), timeout=timeout_s).close()
            return
        except TimeoutError:
            reasons.append("no answer")
        except OSError as error:
            reasons.append((error.strerror or str(error)).lower())
    why = "; ".join(dict.fromkeys(reasons))
    raise CommandFailed(f"No broker is reachable at {bootstrap}: {why}.", code=ExitCode.NOT_REACHABLE)


def split_address(address: str) -> tuple[str, int]:
    """host:port, [v6]:port, or a host alone; librdkafka also takes PROTOCOL://host:port."""
    rest = address.rpartition("://")[2]
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CommandFailed(f"--bootstrap: {address!r} is not host:port.", code=ExitCode.USAGE)
    return host.strip("[]"), int(port)


def failure(error: KafkaError, *, about: str, bootstrap: str) -> CommandFailed:
    """What a KafkaError means to the person who ran the command."""
    from confluent_kafka import KafkaError as E

    if error.code() in (E._TRANSPORT, E._ALL_BROKERS_DOWN, E._RESOLVE, E._TIMED_OUT):
        message = f"{bootstrap} accepts connections but did not answer as a Kafka broker in time."
        return CommandFailed(message, code=ExitCode.NOT_REACHABLE)
    if error.code() in (E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_TOPIC, E._UNKNOWN_PARTITION, E.UNKNOWN_TOPIC_ID):
        return CommandFailed(f"{about}: there is no such topic or partition.", code=ExitCode.NOT_FOUND)
    return CommandFailed(f"{about}: {sentence(error.str())} ({error.name()})")


def sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def topic_metadata(handle: Any, args: argparse.Namespace, topic: str | None = None) -> dict[str, Any]:
    """The cluster's topics by name, or one of them (which asks an obliging cluster to create it)."""
    from confluent_kafka import KafkaException

    try:
        topics: dict[str, Any] = handle.list_topics(topic=topic, timeout=args.timeout).topics
    except KafkaException as error:
        raise failure(error.args[0], about="The cluster", bootstrap=args.bootstrap) from None
    return topics
