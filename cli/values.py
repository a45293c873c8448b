"""What an argument may be. The parser refuses a value that does not fit, before any request to a broker."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
# What librdkafka can ask for in one request.
PARTITIONS_MAX: Final = 100_000
REPLICAS_MAX: Final = 10_000
SECONDS_MAX: Final = 3600.0
NAME_BYTES_MAX: Final = 32_767  # what a string on the wire can carry
TOPIC_CHARACTERS_MAX: Final = 249  # as in Kafka

_DIGITS: Final = re.compile(r"[0-9]{1,19}")


def whole_number(*, least: int = 0, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _DIGITS.fullmatch(text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{clipped(text)} is not a whole number from {least} to {most}")

    return parse


partition_count = whole_number(least=1, most=PARTITIONS_MAX)
replica_count = whole_number(least=1, most=REPLICAS_MAX)
partition_number = whole_number(most=INT32_MAX)
broker_id = whole_number(most=INT32_MAX)
int64 = whole_number(most=INT64_MAX)
bytes_per_second = whole_number(least=1, most=INT64_MAX)


def signed_int64(text: str) -> int:
    number = int64(text.removeprefix("-"))
    return -number if text.startswith("-") else number


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.001 <= number <= SECONDS_MAX:  # not a number fails this, too
        raise argparse.ArgumentTypeError(f"{clipped(text)} is not a number of seconds from 0.001 to {SECONDS_MAX:g}")
    return number


def name(text: str) -> str:
    if not text or len(text.encode()) > NAME_BYTES_MAX:
        raise argparse.ArgumentTypeError(f"{clipped(text)} is no name")
    return text


def topic(text: str) -> str:
    """Which characters are allowed in it is for the cluster to say."""
    if not 1 <= len(text) <= TOPIC_CHARACTERS_MAX:
        raise argparse.ArgumentTypeError(f"{clipped(text)} is no topic: 1 to {TOPIC_CHARACTERS_MAX} characters")
    return text


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{clipped(text)} is not KEY=VALUE")
    return key, value


def broker_ids(text: str) -> list[int]:
    return [broker_id(each) for each in text.split(",")]


def assignment(text: str) -> list[list[int]]:
    """1:2,2:3: the brokers of each partition."""
    return [[broker_id(each) for each in partition.split(":")] for partition in text.split(",")]


def clipped(text: str) -> str:
    """The text as an error message shows it: quoted, and not longer than a line."""
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
