"""One record for every partition of many topics, acknowledged by all replicas: only then is a topic really there."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.loaders.process import serve

PATIENCE_S = 400.0


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    producer = Producer({**parameters["client"], "acks": "all", "message.timeout.ms": int(1000 * PATIENCE_S)})
    topics, partitions = parameters["topics"], int(parameters["partitions"])
    done = 0

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal done
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        done += 1

    def work() -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        for topic in topics:
            for partition in range(partitions):
                producer.produce(topic, b"first", partition=partition, on_delivery=delivered)
            producer.poll(0)
        while done < len(topics) * partitions:
            producer.poll(0.5)
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {done} were acknowledged")
        return {"records": done}

    return work


if __name__ == "__main__":
    serve(prepare)
