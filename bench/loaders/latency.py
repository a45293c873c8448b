"""One record at a time: sent, and waited for on the consuming side, in one process with one clock."""

import os
import time
from collections.abc import Callable
from typing import Any

from bench.librdkafka import BatchConsumer, BatchProducer
from bench.loaders.process import serve

LOST_MS = 10_000


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    name, value = parameters["topic"], os.urandom(int(parameters["size"]))
    producer = BatchProducer(parameters["producer"], topic=name, value=value, batch=1)
    consumer = BatchConsumer(parameters["consumer"], topic=name, batch=1)
    producer.watermarks(0)
    consumer.start(0, offset=consumer.watermarks(0)[1])

    def one() -> float:
        started = time.perf_counter()
        producer.send(0)
        if not consumer.poll(limit=1, timeout_ms=LOST_MS):
            raise TimeoutError(f"a record did not come within {LOST_MS} ms")
        return time.perf_counter() - started

    for _ in range(int(parameters["warm_up"])):
        one()

    def work() -> dict[str, Any]:
        times = sorted(one() for _ in range(int(parameters["records"])))
        return {
            "records": len(times),
            "p50_ms": 1e3 * times[len(times) // 2],
            "p99_ms": 1e3 * times[len(times) * 99 // 100],
            "max_ms": 1e3 * times[-1],
        }

    return work


if __name__ == "__main__":
    serve(prepare)
