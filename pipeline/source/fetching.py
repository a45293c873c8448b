"""A partition read over the Kafka protocol, for where its files cannot be reached. The next fetch travels while the
batches of the last one are cut."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from tidemark.pipeline.source.client import EARLIEST, LATEST, ReadFailed, ReadingClient, TryAgain, check, leader_of
from tidemark.pipeline.source.walking import AbortedTransactions, Walk, walk
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidemark.protocol.records import InvalidBatch

FETCH_VERSION = 13  # the first that names topics by id: one that was made anew is not mistaken for the old one
WAIT_MS_MAX = 500
_log = logging.getLogger(__name__)


class DataLoss(ReadFailed):
    """Records that were planned for are gone."""

    def __init__(self, *, topic: str, partition: int, first: int, end: int) -> None:
        self.topic, self.partition, self.first, self.end = topic, partition, first, end
        super().__init__(
            f"{topic}-{partition}: offsets {first} to {end - 1} are gone, by retention or deletion, before they were "
            "read. To go on without them, set the option failOnDataLoss to false."
        )


class Fetching:
    """Reads offsets first..end-1 of one partition, across changes of its leader."""

    def __init__(
        self,
        cluster: ReadingClient,
        *,
        topic: str,
        topic_id: bytes,
        partition: int,
        committed: bool,
        fetch_bytes: int,
        fail_on_data_loss: bool,
        stuck_s_max: float = 60,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._topic_id = topic_id
        self._partition = partition
        self._committed = committed
        self._fetch_bytes = fetch_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._stuck_s_max = stuck_s_max
        self._leader = -1

    def read(self, *, first: int, end: int) -> Iterator[tuple[memoryview, Walk]]:
        sent = False
        deadline = time.monotonic() + self._stuck_s_max
        while first < end:
            if not sent:
                self._cluster.persist(lambda at=first: self._send(at))  # type: ignore[misc]
            answer = self._answer(first)
            sent = False
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                first = self._after_loss(first, end)
                continue
            data = _as_view(answer)
            pairs = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
            try:
                seen = walk(data, first=first, end=end, aborted=AbortedTransactions(pairs))
            except InvalidBatch as error:
                raise ReadFailed(f"{self._topic}-{self._partition}, offset {first}: {error}.") from error
            if seen.at_end:
                yield data, seen
                return
            if seen.next_offset > first:
                first = seen.next_offset
                deadline = time.monotonic() + self._stuck_s_max
                sent = self._send_ahead(first)
                yield data, seen
                continue
            visible_end = answer.last_stable_offset if self._committed else answer.high_watermark
            if not data and visible_end >= end:
                return  # compaction has taken away what was left of the range
            if time.monotonic() > deadline:
                raise ReadFailed(f"{self._topic}-{self._partition}: nothing comes from offset {first} on.")

    def _request(self, offset: int) -> FetchRequest:
        wanted = FetchPartition(partition=self._partition, fetch_offset=offset, partition_max_bytes=self._fetch_bytes)
        return FetchRequest(
            max_wait_ms=WAIT_MS_MAX,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[wanted])],
        )

    def _send(self, offset: int) -> None:
        topics = self._cluster.topics([self._topic])
        self._leader = leader_of(topics, self._topic, self._partition)
        if topics[self._topic].topic_id != self._topic_id:
            raise ReadFailed(f"Topic {self._topic} was deleted and made anew while it was read.")
        try:
            self._cluster.connection(self._leader).send(self._request(offset), FETCH_VERSION)
        except OSError as error:
            self._cluster.drop(self._leader)
            raise TryAgain(f"node {self._leader}: {error}") from error

    def _send_ahead(self, offset: int) -> bool:
        try:
            self._cluster.connection(self._leader).send(self._request(offset), FETCH_VERSION)
        except OSError:
            self._cluster.drop(self._leader)
            return False
        return True

    def _answer(self, offset: int) -> PartitionData:
        """The answer to the request under way; if that is lost, to one sent anew."""
        try:
            return self._receive()
        except TryAgain:
            return self._cluster.persist(lambda: self._send_and_receive(offset))

    def _send_and_receive(self, offset: int) -> PartitionData:
        self._send(offset)
        return self._receive()

    def _receive(self) -> PartitionData:
        try:
            answer = self._cluster.connection(self._leader).receive(FetchResponse, FETCH_VERSION)
        except (OSError, ValueError) as error:
            self._cluster.drop(self._leader)
            raise TryAgain(f"node {self._leader} did not answer as it should: {error}") from error
        about = f"Reading {self._topic}-{self._partition}"
        check(answer.error_code, about)
        if not answer.responses or not answer.responses[0].partitions:
            raise TryAgain(f"{about}: an empty answer")
        found = answer.responses[0].partitions[0]
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise TryAgain(f"{about}: {ErrorCode(found.error_code).name}")
        if found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            check(found.error_code, about)
        return found

    def _after_loss(self, first: int, end: int) -> int:
        """Where to go on when `first` is not in the log any more, if that is allowed."""
        this = (self._topic, self._partition)
        earliest = self._cluster.offsets({this: EARLIEST}, committed=False)[this]
        latest = self._cluster.offsets({this: LATEST}, committed=False)[this]
        if earliest <= first <= latest:
            return first
        after = min(earliest, end) if first < earliest else end
        loss = DataLoss(topic=self._topic, partition=self._partition, first=first, end=after)
        if self._fail_on_data_loss:
            raise loss
        _log.warning("%s-%d: offsets %d to %d are gone and left out", *this, first, after - 1)
        return after


def _as_view(answer: PartitionData) -> memoryview:
    records = answer.records
    return records if isinstance(records, memoryview) else memoryview(b"")
