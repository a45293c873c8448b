"""One record for every partition of many topics, acknowledged by all replicas: only then is a topic really there."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.loaders.process import serve

PATIENCE_S = 400.0


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    patience_ms = int(1000 * PATIENCE_S)
    patience = {"message.timeout.ms": patience_ms, "topic.metadata.propagation.max.ms": patience_ms}
    producer = Producer({**parameters["client"], **patience, "acks": "all"})
    topics, partitions = parameters["topics"], int(parameters["partitions"])
    done = 0

    refused: list[tuple[str, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal done
        if error is None:
            done += 1
        else:  # a broker that has not made the partition yet says that there is none
            refused.append((message.topic(), message.partition()))

    def send(topic: str, partition: int) -> None:
        producer.produce(topic, b"first", partition=partition, on_delivery=delivered)

    def work() -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        for topic in topics:
            for partition in range(partitions):
                send(topic, partition)
            producer.poll(0)
        while done < len(topics) * partitions:
            producer.poll(0.2)
            while refused:
                send(*refused.pop())
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {done} were acknowledged")
        return {"records": done}

    return work


if __name__ == "__main__":
    serve(prepare)
