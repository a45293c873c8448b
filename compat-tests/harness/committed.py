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
    """Reads a topic from its start, and on through restarts of the broker: what it was once shown, it has counted."""

    def __init__(self, reader: Consumer, item: Callable[[Message], Item]) -> None:
        self._reader = reader
        self._item = item
        self.counts: Counter[Item] = Counter()

    def poll(self, seconds: float) -> int:
        polled = [each for each in self._reader.consume(10_000, seconds) if not each.error()]
        self.counts.update(map(self._item, polled))
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
        assert not twice, f"{len(twice)} items more than once, such as {twice[:5]}"
        assert len(self.counts) == wanted


@contextmanager
def committed_items(
    bootstrap: str, topic: str, *, partitions: int, item: Callable[[Message], Item]
) -> Iterator[CommittedItems[Item]]:
    with consumer(bootstrap, isolation_level="read_committed", reconnect_backoff_max_ms=200) as reader:
        reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        yield CommittedItems(reader, item)
