"""Produces equal records round-robin over the partitions: a number of them, or for a time."""

import os
import time
from collections.abc import Callable
from typing import Any

from bench.librdkafka import BatchProducer
from bench.loaders.process import serve


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    partitions, batch = int(parameters["partitions"]), int(parameters["batch"])
    first = int(parameters.get("first_partition", 0))
    # Random bytes: nothing on the way may gain by compressing or deduplicating them.
    value = os.urandom(int(parameters["size"]))
    producer = BatchProducer(parameters["client"], topic=parameters["topic"], value=value, batch=batch)
    for partition in range(partitions):
        producer.watermarks(partition)
    if parameters.get("send_first"):  # an idempotent client asks for its id when it sends, and takes its time
        producer.send(first, count=1)
        producer.flush()

    def send_count() -> int:
        rounds = int(parameters["records"]) // batch
        for number in range(rounds):
            producer.send((first + number) % partitions)
        return rounds * batch

    def send_while() -> int:
        deadline, number = time.monotonic() + float(parameters["seconds"]), 0
        while time.monotonic() < deadline:
            producer.send((first + number) % partitions)
            number += 1
        return number * batch

    def work() -> dict[str, Any]:
        sent = send_count() if "records" in parameters else send_while()
        producer.flush()
        return {"records": sent}

    return work


if __name__ == "__main__":
    serve(prepare)
