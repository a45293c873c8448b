"""Logs that could not be opened, and are tried again: perhaps there is room by now, or they may be rebuilt."""

from __future__ import annotations

from tidemark.broker.metadata.image import PartitionImage
from tidemark.broker.replication.log_opening import Assign, LogOpening
from tidemark.broker.replication.replica_logs import Key, ReplicaLogs
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.storage import CorruptLog, TopicIdMismatch, is_disk_failure


class LogRetries:
    def __init__(self, table: ReplicaTable, logs: ReplicaLogs, opening: LogOpening, *, assign: Assign) -> None:
        self._table = table
        self._logs = logs
        self._opening = opening
        self._assign = assign
        self._unopened: dict[Key, Exception] = {}

    def add(self, key: Key, error: Exception) -> None:
        self._unopened[key] = error

    def retry(self) -> None:
        for key, error in list(self._unopened.items()):
            hosted = self._table.topics_by_id.get(key[0])
            if hosted is None or key[1] not in hosted.offline:
                del self._unopened[key]
            elif key not in self._opening and self._is_worth_trying(hosted.image.partitions[key[1]], error):
                self._assign(hosted, key[1])
                self._opening.opened_later(hosted.name)

    def _is_worth_trying(self, image: PartitionImage, error: Exception) -> bool:
        if not self._table.is_leased:
            return False
        if is_disk_failure(error):
            return False  # not before the node is restarted
        is_lasting = isinstance(error, CorruptLog | TopicIdMismatch)  # to open it again would find the same
        return not is_lasting or self._logs.may_discard(image, error)
