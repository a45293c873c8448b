"""Large batches made beforehand, as fast as they are taken: a few requests under way, partitions in turn."""

import socket
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from bench import produce_wire
from bench.loaders.process import serve

PATIENCE_S = 60.0
IN_FLIGHT = 5  # the Java client's default
RECEIVE_BYTES = 1 << 16


class Stream:
    def __init__(self, address: tuple[str, int], *, topic: str, frames: list[bytearray]) -> None:
        self._sock = socket.create_connection(address, timeout=PATIENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic, self._frames = topic, cycle(frames)
        self._inbox, self._under_way = bytearray(), 0
        self.answered = 0

    def send(self) -> None:
        while self._under_way >= IN_FLIGHT:
            self._receive()
        self._sock.sendall(next(self._frames))
        self._under_way += 1

    def finish(self) -> None:
        while self._under_way:
            self._receive()

    def _receive(self) -> None:
        data = self._sock.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("closed by the broker")
        self._inbox += data
        answers = produce_wire.take_answers(self._inbox, topic=self._topic)
        self._under_way -= answers
        self.answered += answers


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    host, port = parameters["address"]
    topic, records = parameters["topic"], int(parameters["records_per_batch"])
    batch = produce_wire.batch_of(records=records, size=int(parameters["size"]))
    frames = [
        produce_wire.request(batch, topic=topic, partition=int(partition), acks=int(parameters["acks"]))
        for partition in parameters["partitions"]
    ]
    stream = Stream((host, int(port)), topic=topic, frames=frames)

    def work() -> dict[str, Any]:
        deadline = time.monotonic() + float(parameters.get("seconds", 1e9))
        batches = int(parameters.get("batches", 1e9))
        while batches and time.monotonic() < deadline:
            stream.send()
            batches -= 1
        stream.finish()
        return {"records": stream.answered * records}

    return work


if __name__ == "__main__":
    serve(prepare)
