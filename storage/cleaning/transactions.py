"""Which transactional batches and markers may go: a pass over a log in the order of its offsets.

Records of aborted transactions go at once. A marker must outlive its data, or a reader could not tell what became of
it: it may go when no batch of its transaction was met before it, and then only after a while (KIP-534).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidemark.protocol.records import BatchHeader, Buffer, InvalidBatch, read_end_transaction
from tidemark.storage.aborted import AbortedTransaction


class TransactionPass:
    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=_first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}  # by producer: its transaction here ends in an abort
        self._has_data: set[int] = set()  # producers of which a batch of the present transaction was met
        self.kept_aborts: list[AbortedTransaction] = []  # whose data was met: a reader still has to know them

    def take_kept_aborts(self) -> list[AbortedTransaction]:
        kept, self.kept_aborts = self.kept_aborts, []
        return kept

    def on_data(self, producer_id: int, *, last_offset: int) -> bool:
        """A transactional batch. Whether its transaction is aborted, so that it can go."""
        self._begin(up_to=last_offset)
        self._has_data.add(producer_id)
        return producer_id in self._aborting

    def on_control(self, header: BatchHeader, batch: Buffer) -> bool:
        """A control batch. Whether nothing of its transaction is left, so that it can go some time."""
        self._begin(up_to=header.last_offset)
        try:
            marker = read_end_transaction(batch) if header.record_count else None
        except InvalidBatch:
            return False
        if marker is None:
            return not header.record_count  # emptied by an earlier pass; of other control records nothing is known
        aborted = None if marker.commit else self._aborting.pop(marker.producer_id, None)
        had_data = marker.producer_id in self._has_data
        self._has_data.discard(marker.producer_id)
        if aborted is not None and had_data:
            self.kept_aborts.append(aborted)
        return not had_data

    def _begin(self, *, up_to: int) -> None:
        while self._coming and self._coming[0].first_offset <= up_to:
            aborted = self._coming.popleft()
            if aborted.last_offset >= up_to:
                self._aborting[aborted.producer_id] = aborted


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset
