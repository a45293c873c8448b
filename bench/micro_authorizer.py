"""What an authorizer costs: `python bench/micro_authorizer.py`.

Microseconds of processor time per produce request inside the broker, from frame to answer, without and with a thousand
access control entries, some of them prefixes; and per decision, the first time and from then on. The best of several
runs.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import Any

from micro_produce import Sink, batch_of, measure

from tidemark.broker.config import load_config
from tidemark.broker.config.broker_settings import STANDARD_AUTHORIZER
from tidemark.broker.core.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from tidemark.broker.core.principal import Principal
from tidemark.broker.metadata.acl_index import AclIndex
from tidemark.broker.metadata.acls import add_acls
from tidemark.broker.metadata.topics import NewTopic
from tidemark.broker.node import Node
from tidemark.broker.security.rights import Rights

ANN = Principal("User", "ann")
HOST = "10.0.0.7"
ACLS = 1000
ROUNDS = 5


def acls(count: int) -> list[Acl]:
    """Half of them ann's, a tenth prefixes; the last one is what lets her write."""
    made = [
        Acl(
            ResourceType.TOPIC,
            f"topic-{number}",
            PatternType.PREFIXED if number % 10 == 0 else PatternType.LITERAL,
            "User:ann" if number % 2 else f"User:u{number}",
            "10.0.0.0/8" if number % 5 == 0 else "*",
            AclOperation.READ,
            Permission.DENY if number % 7 == 0 else Permission.ALLOW,
        )
        for number in range(count - 1)
    ]
    return [*made, _writing("bench")]


def _writing(name: str) -> Acl:
    topic, write = ResourceType.TOPIC, AclOperation.WRITE
    return Acl(topic, name, PatternType.LITERAL, "User:ann", "10.0.0.0/8", write, Permission.ALLOW)


class Ann(Sink):
    """A connection of hers."""

    principal = ANN
    host = HOST


async def produce_us(count: int) -> list[float]:
    """One record, and one to two partitions: the quick way, and the general one."""
    with tempfile.TemporaryDirectory() as directory:
        settings: dict[str, Any] = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
        if count:
            settings |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
        node = Node(load_config(overrides=settings))
        await node.start()
        wish = NewTopic(
            name="bench",
            topic_id=bytes([1] * 16),
            partitions=2,
            replication_factor=1,
            configs={"retention.bytes": "1000000"},
        )
        await node._creation.create([wish])
        if count:
            await node._store.change(lambda image: add_acls(image, acls(count)))
        small = batch_of(1, 96)
        figures = [await measure(node, "bench", small, partitions, 2000, sink=Ann()) for partitions in (1, 2)]
        await node.stop()
        return figures


def decision_us() -> tuple[float, float, float]:
    """To find the rights of a client, to decide for the first time, and to decide again."""
    index = AclIndex().changed(added=acls(ACLS))
    best = [float("inf")] * 3
    for _ in range(ROUNDS):
        start = time.perf_counter()
        rights = Rights(ANN, HOST, index, is_super=False, allows_without_acl=False)
        found = time.perf_counter()
        names = [f"topic-{number}" for number in range(1000)]
        for name in names:
            rights.may(AclOperation.READ, ResourceType.TOPIC, name)
        first = time.perf_counter()
        for name in names:
            rights.may(AclOperation.READ, ResourceType.TOPIC, name)
        again = time.perf_counter()
        figures = (found - start, (first - found) / len(names), (again - first) / len(names))
        best = [min(pair) for pair in zip(best, figures, strict=True)]
    return best[0] * 1e6, best[1] * 1e6, best[2] * 1e6


async def main() -> None:
    print(f"{'µs per produce request of 1 record of 96 B':<46}{'fast path':>12}{'general':>12}")
    for name, count in (("without an authorizer", 0), ("with 1 entry", 1), (f"with {ACLS:,} entries", ACLS)):
        print(f"{name:<46}" + "".join(f"{each:12.1f}" for each in await produce_us(count)), flush=True)
    rights, first, again = decision_us()
    print(f"\n{ACLS:,} entries: the rights of a client {rights:.0f} µs,", end=" ")
    print(f"a decision {first:.2f} µs, the same again {again:.2f} µs")


if __name__ == "__main__":
    asyncio.run(main())
