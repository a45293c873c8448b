"""Commits offsets of one partition for several groups, for a time: one by one, or many on their way at once."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bench.loaders.process import serve

IN_FLIGHT = 100


class Committer:
    """A consumer that belongs to no generation: it only commits, as one with assign() does."""

    def __init__(self, settings: dict[str, Any], *, topic: str) -> None:
        self._topic = topic
        self._offset = 0
        self._done = 0
        self._sent = 0
        self._consumer = Consumer({**settings, "on_commit": self._on_commit})
        self._commit()

    def _on_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            raise KafkaException(error)
        self._done += 1

    def _next(self) -> list[TopicPartition]:
        self._offset += 1
        return [TopicPartition(self._topic, 0, self._offset)]

    def _commit(self) -> None:
        answer = self._consumer.commit(offsets=self._next(), asynchronous=False)
        if answer[0].error is not None:
            raise KafkaException(answer[0].error)

    def one_by_one(self, deadline: float) -> int:
        count = 0
        while time.monotonic() < deadline:
            self._commit()
            count += 1
        return count

    def pipelined(self, deadline: float) -> int:
        self._done = self._sent = 0
        while (more := time.monotonic() < deadline) or self._done < self._sent:
            while more and self._sent - self._done < IN_FLIGHT:
                self._consumer.commit(offsets=self._next(), asynchronous=True)
                self._sent += 1
            self._consumer.poll(0.001)
        return self._done


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    groups = [{**parameters["client"], "group.id": group} for group in parameters["groups"]]
    committers = [Committer(settings, topic=parameters["topic"]) for settings in groups]
    counts: list[int] = []

    def run(committer: Committer, deadline: float) -> None:
        way = committer.pipelined if parameters["asynchronous"] else committer.one_by_one
        counts.append(way(deadline))

    def work() -> dict[str, Any]:
        deadline = time.monotonic() + float(parameters["seconds"])
        threads = [threading.Thread(target=run, args=(committer, deadline)) for committer in committers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(counts) != len(committers):
            raise RuntimeError("a committer failed")
        return {"records": sum(counts)}

    return work


if __name__ == "__main__":
    serve(prepare)
