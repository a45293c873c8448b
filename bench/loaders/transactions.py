"""Transactions, each of some records in some partitions, by several producers: a number of them, or for a time.

The latency is that of the commit call. With `flush_first` all records are acknowledged before it, so that it is what a
transaction costs beside its data.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.librdkafka import TransactionalProducer
from bench.loaders.process import serve


class Worker:
    def __init__(self, parameters: dict[str, Any], *, transactional_id: str) -> None:
        self._partitions = int(parameters["partitions"])
        self._records = int(parameters["records"])
        self._abort_every = int(parameters.get("abort_every", 0))
        self._flush_first = bool(parameters.get("flush_first"))
        value = os.urandom(int(parameters["size"]))
        config = {**parameters["client"], "transactional.id": transactional_id}
        share = -(-self._records // self._partitions)
        self._producer = TransactionalProducer(config, topic=parameters["topic"], value=value, batch=share)
        for partition in range(self._partitions):
            self._producer.watermarks(partition)
        self._producer.init()
        self.latencies: list[float] = []
        self.transactions = 0
        self.is_done = False

    def one(self) -> None:
        self._producer.begin()
        for partition in range(self._partitions):
            self._producer.send(partition, count=len(range(partition, self._records, self._partitions)))
        self.transactions += 1
        aborts = self._abort_every and self.transactions % self._abort_every == 0
        if self._flush_first or aborts:
            self._producer.flush()
        started = time.perf_counter()
        if aborts:
            self._producer.abort()
        else:
            self._producer.commit()
        self.latencies.append(time.perf_counter() - started)

    def run(self, turns: Iterator[object]) -> None:
        self.is_done = False
        for _ in turns:
            self.one()
        self.is_done = True


def _turns(parameters: dict[str, Any]) -> Iterator[object]:
    if "transactions" in parameters:
        yield from range(int(parameters["transactions"]))
        return
    deadline = time.monotonic() + float(parameters["seconds"])
    while time.monotonic() < deadline:
        yield None


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    workers = [Worker(parameters, transactional_id=name) for name in parameters["ids"]]
    for worker in workers:
        worker.run(iter(range(int(parameters.get("warm_up", 0)))))
        worker.latencies.clear()
        worker.transactions = 0

    def work() -> dict[str, Any]:
        threads = [threading.Thread(target=worker.run, args=(_turns(parameters),)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not all(worker.is_done for worker in workers):
            raise RuntimeError("a producer failed")
        latencies = sorted(latency for worker in workers for latency in worker.latencies)
        transactions = sum(worker.transactions for worker in workers)
        return {
            "transactions": transactions,
            "records": transactions * int(parameters["records"]),
            "p50_ms": 1e3 * latencies[len(latencies) // 2],
            "p99_ms": 1e3 * latencies[len(latencies) * 99 // 100],
        }

    return work


if __name__ == "__main__":
    serve(prepare)
