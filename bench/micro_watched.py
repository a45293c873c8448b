"""What being watched costs a small produce request inside the broker: `python bench/micro_watched.py [TURNS]`.

From frame to answer, with a real log on disk, without a socket, as micro_produce.py: with nobody who looks, with the
log of slow requests (which is on unless it is switched off), and with an HTTP listener, where requests are measured,
too. Each is measured in a process of its own (Python makes its code quicker for what it is used for), in turns; of
each process the best round counts, and the medians of processes are shown.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from in_turns import compare
from micro_produce import Sink, batch_of, measure

from tidemark.broker.config import load_config
from tidemark.broker.core.garbage import collect_rarely
from tidemark.broker.metadata.topics import NewTopic
from tidemark.broker.node import Node
from tidemark.broker.server.crowd import BrokerLoop

WATCHED: dict[str, dict[str, str]] = {
    "nobody": {"tidemark.log.slow.request.ms": "-1"},
    "slow requests": {},
    "http": {"http.listeners": "HTTP://127.0.0.1:0"},
}
TURNS = 7


class Client(Sink):
    held_at = 0.0
    circumstances: Mapping[str, Any] = {}  # for the log: on a busy machine one may be slow

    def __init__(self, server: Any) -> None:
        super().__init__()
        self.server = server


async def measured(settings: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as directory:
        fixed = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
        node = Node(load_config(overrides=fixed | settings))
        await node.start()
        topic = NewTopic(
            name="t",
            topic_id=bytes([7] * 16),
            partitions=1,
            replication_factor=1,
            configs={"retention.bytes": "1000000"},
        )
        await node._creation.create([topic])
        # Short rounds, and many: some of them are not disturbed, whatever else the machine does.
        figure = await measure(node, "t", batch_of(1, 96), 1, 500, Client(node._server), rounds=300)
        await node.stop()
        return figure


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in WATCHED:
        collect_rarely()
        with asyncio.Runner(loop_factory=BrokerLoop) as runner:
            print(runner.run(measured(WATCHED[sys.argv[1]])))
    else:
        compare(__file__, WATCHED, turns=int(sys.argv[1]) if sys.argv[1:] else TURNS)
