"""One record at a time with acks=all, each waited for: how long each acknowledgement took, and the longest silence."""

import os
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from bench.loaders.process import serve

PATIENCE_S = 60.0


class Sender:
    def __init__(self, parameters: dict[str, Any]) -> None:
        self._producer = Producer({**parameters["client"], "acks": "all", "linger.ms": 0})
        self._topic, self._value = parameters["topic"], os.urandom(int(parameters["size"]))
        self._done = False

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        self._done = True

    def one(self) -> float:
        begun, self._done = time.perf_counter(), False
        self._producer.produce(self._topic, self._value, partition=0, on_delivery=self._delivered)
        while not self._done:
            self._producer.poll(PATIENCE_S)
            if time.perf_counter() - begun > PATIENCE_S:
                raise TimeoutError("no acknowledgement")
        return time.perf_counter() - begun


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    sender = Sender(parameters)
    for _ in range(int(parameters["warm_up"])):
        sender.one()

    def work() -> dict[str, Any]:
        if "records" in parameters:
            times = sorted(sender.one() for _ in range(int(parameters["records"])))
        else:
            deadline, times = time.monotonic() + float(parameters["seconds"]), []
            while time.monotonic() < deadline:
                times.append(sender.one())
            times.sort()
        return {
            "records": len(times),
            "p50_ms": 1e3 * times[len(times) // 2],
            "p99_ms": 1e3 * times[len(times) * 99 // 100],
            "gap_s": times[-1],
        }

    return work


if __name__ == "__main__":
    serve(prepare)
