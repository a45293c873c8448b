"""What quotas cost a small produce request inside the broker: `python bench/micro_quotas.py [TURNS]`.

From frame to answer, with a real log on disk, without a socket, as micro_produce.py: without quotas, with a byte rate,
and with a share of the time as well. They are real quotas, and none of them is ever reached. Each is measured in a
process of its own (Python makes its code quicker for what it is used for), in turns; the medians are shown.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from in_turns import compare
from micro_produce import Sink, batch_of, measure

from tidemark.broker.config import load_config
from tidemark.broker.core.principal import ANONYMOUS
from tidemark.broker.metadata.client_quotas import Entity
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.topics import NewTopic
from tidemark.broker.node import Node

EVERYBODY: Entity = (("user", None),)
BYTES_PER_SECOND = 100_000_000.0  # 150,000 requests as small as these would take 20 MB
PERCENT = 200.0  # one event loop cannot take more than 100
QUOTAS: dict[str, dict[str, float]] = {
    "none": {},
    "bytes": {"producer_byte_rate": BYTES_PER_SECOND},
    "bytes and time": {"producer_byte_rate": BYTES_PER_SECOND, "request_percentage": PERCENT},
}
TURNS = 7


class Client(Sink):
    principal = ANONYMOUS
    meter: object = None
    is_peer = False
    throttle_seconds = 0.0


async def measured(values: dict[str, float]) -> float:
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
        node._quotas.follow(Image(), Image(client_quotas={EVERYBODY: values} if values else {}))
        figure = await measure(node, "t", batch_of(1, 96), 1, 4000, Client())
        await node.stop()
        return figure


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in QUOTAS:
        print(asyncio.run(measured(QUOTAS[sys.argv[1]])))
    else:
        compare(__file__, QUOTAS, turns=int(sys.argv[1]) if sys.argv[1:] else TURNS)
