"""Topics as seen from outside while transactions write to them."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from harness.waiting import eventually

SECONDS_MAX = 300


class TopicEnds:
    """Where topics end: for those who see everything, and for those who see what is committed."""

    def __init__(self, committed: Consumer, everything: Consumer, *, partitions: int) -> None:
        self._committed, self._everything, self._partitions = committed, everything, partitions

    def await_open_transaction(self, topic: str) -> None:
        """Records are there, but not yet stable."""
        eventually(
            lambda: self._ends(self._committed, topic) != self._ends(self._everything, topic), seconds_max=SECONDS_MAX
        )

    def await_commit(self, topic: str) -> None:
        before = self._ends(self._committed, topic)
        eventually(lambda: self._ends(self._committed, topic) != before, seconds_max=SECONDS_MAX)

    def _ends(self, reader: Consumer, topic: str) -> list[int]:
        places = [TopicPartition(topic, partition) for partition in range(self._partitions)]
        return [reader.get_watermark_offsets(each, timeout=30)[1] for each in places]
