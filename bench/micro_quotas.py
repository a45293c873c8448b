"""What quotas cost a small produce request inside the broker: `python bench/micro_quotas.py`.

From frame to answer, with a real log on disk, without a socket, as micro_produce.py: without quotas, with a byte rate,
and with a share of the time as well. None of them is ever reached. The best of several runs, in turns.
"""

from __future__ import annotations

import asyncio
import tempfile

from micro_produce import Sink, batch_of, measure

from tidemark.broker.config import load_config
from tidemark.broker.core.principal import ANONYMOUS
from tidemark.broker.metadata.client_quotas import Entity
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.topics import NewTopic
from tidemark.broker.node import Node

EVERYBODY: Entity = (("user", None),)
PLENTY = 1e15
QUOTAS: dict[str, dict[str, float]] = {
    "none": {},
    "bytes": {"producer_byte_rate": PLENTY},
    "bytes and time": {"producer_byte_rate": PLENTY, "request_percentage": PLENTY},
}
TURNS = 5


class Client(Sink):
    principal = ANONYMOUS
    meter: object = None
    is_peer = False
    throttle_seconds = 0.0


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = Node(load_config(overrides={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}))
        await node.start()
        topic = NewTopic(
            name="t",
            topic_id=bytes([7] * 16),
            partitions=1,
            replication_factor=1,
            configs={"retention.bytes": "1000000"},
        )
        await node._creation.create([topic])
        best = dict.fromkeys(QUOTAS, float("inf"))
        for _ in range(TURNS):
            for name, values in QUOTAS.items():
                node._quotas.follow(Image(), Image(client_quotas={EVERYBODY: values} if values else {}))
                best[name] = min(best[name], await measure(node, "t", batch_of(1, 96), 1, 4000, Client()))
        for name, figure in best.items():
            print(f"{name:16} {figure:6.2f} µs per request, {figure - best['none']:+.2f}")
        await node.stop()


if __name__ == "__main__":
    asyncio.run(main())
