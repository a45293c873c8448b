"""What a read_committed reader finds, counted: the proof of "each exactly once"."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from harness.confluent_client import consumer

Item = TypeVar("Item", bound=Hashable)
QUIET_SECONDS = 2.0


class CommittedItems(Generic[Item]):
    """Reads a topic from its start, and on through restarts of the broker: what it was once shown, it has counted.

    What lies at one offset counts once, however often the client hands it over: after a broker's restart a client may
    check its position and fetch a batch again, which says nothing about what was written.
    """

    def __init__(self, reader: Consumer, item: Callable[[Message], Item]) -> None:
        self._reader = reader
        self._item = item
        self.counts: Counter[Item] = Counter()
        self.repeated = 0
        self._next: dict[int, int] = {}

    def poll(self, seconds: float) -> int:
        polled = [each for each in self._reader.consume(10_000, seconds) if not each.error()]
        for message in polled:
            offset, partition = message.offset() or 0, message.partition() or 0
            if offset < self._next.get(partition, 0):
                self.repeated += 1
                continue
            self._next[partition] = offset + 1
            self.counts[self._item(message)] += 1
        return len(polled)

    def wait_for(self, wanted: int, *, seconds_max: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until so many different items are there."""
        deadline = time.monotonic() + seconds_max
        while len(self.counts) < wanted:
            meanwhile()
            self.poll(0.1)
            assert time.monotonic() < deadline, f"{len(self.counts)} of {wanted} items in {seconds_max:.0f} s"

    def assert_each_once(self, wanted: int) -> None:
        """Nothing more may come after the last, either."""
        while self.poll(QUIET_SECONDS):
            pass
        twice = [(each, count) for each, count in self.counts.items() if count != 1]
        assert not twice, f"{len(twice)} items more than once, such as {twice[:5]}; {self.repeated} read again"
        assert len(self.counts) == wanted


@contextmanager
def committed_items(
    bootstrap: str, topic: str, *, partitions: int, item: Callable[[Message], Item]
) -> Iterator[CommittedItems[Item]]:
    with consumer(bootstrap, isolation_level="read_committed", reconnect_backoff_max_ms=200) as reader:
        reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        yield CommittedItems(reader, item)
