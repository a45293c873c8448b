"""Reads some partitions of a topic from their start to the end that they had when the load began; several times."""

import time
from collections.abc import Callable
from typing import Any

from bench.librdkafka import BatchConsumer
from bench.loaders.process import serve

LIMIT_S = 120.0


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    consumer = BatchConsumer(parameters["client"], topic=parameters["topic"])
    partitions = [int(partition) for partition in parameters["partitions"]]
    marks = [consumer.watermarks(partition) for partition in partitions]
    # Offsets are not all records: aborted ones are not shown to every reader, and markers to none.
    wanted = int(parameters.get("records", sum(high - low for low, high in marks)))

    def read_once(deadline: float) -> int:
        for partition in partitions:
            consumer.start(partition)
        seen = 0
        while seen < wanted:
            seen += consumer.poll(limit=wanted - seen)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seen} of {wanted} records within {LIMIT_S:.0f} s")
        for partition in partitions:
            consumer.stop(partition)
        return seen

    def work() -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        return {"records": sum(read_once(deadline) for _ in range(int(parameters["passes"])))}

    return work


if __name__ == "__main__":
    serve(prepare)
