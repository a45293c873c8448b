"""The topics that a consumer's subscription names. A broker reads nothing else of what members send to their leader."""

from __future__ import annotations

import struct

from tidemark.broker.groups.classic.member import Member

_COUNT = struct.Struct(">hi")  # version of the subscription, number of topics
_LENGTH = struct.Struct(">h")


def subscribed_topics(members: list[Member], protocol: str | None) -> frozenset[str] | None:
    """All topics that any member subscribes to; None if some subscription cannot be read."""
    topics: set[str] = set()
    for member in members:
        try:
            topics.update(_topics(member.metadata(protocol)))
        except (struct.error, ValueError):
            return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    """Every version of the format begins with the first: a version, and an array of names."""
    _, count = _COUNT.unpack_from(subscription)
    position, topics = _COUNT.size, []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size + length
        if length < 0 or position > len(subscription):
            raise ValueError("a topic name that does not fit")
        topics.append(subscription[position - length : position].decode())
    return topics
