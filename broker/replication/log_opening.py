"""Opening many logs while the node goes on: which are loaded in the background, and what becomes of them then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidemark.broker.replication.background_loading import BackgroundLoading
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.replica_logs import Key, ReplicaLogs
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.storage import Log


class Assign(Protocol):
    def __call__(self, hosted: HostedTopic, index: int, load_error: Exception | None = None) -> None: ...


class LogOpening:
    def __init__(self, table: ReplicaTable, logs: ReplicaLogs, *, assign: Assign) -> None:
        self._table = table
        self._logs = logs
        self._assign = assign
        self._loading: BackgroundLoading | None = None
        # Called with a topic of which something was opened when no change of the metadata says so.
        self.opened_later: Callable[[str], None] = lambda _topic: None

    def __contains__(self, key: Key) -> bool:
        return self._loading is not None and key in self._loading

    def begin_loading_in_background(self) -> BackgroundLoading:
        """From now on logs are opened without holding up the loop: on a cluster, others wait for this node's
        heartbeats."""
        per_directory = self._table.config.num_recovery_threads_per_data_dir
        self._loading = BackgroundLoading(
            prepare=self._prepare,
            open_now=self.open_now,
            loaded=self._loaded,
            threads=per_directory * len(self._table.directories),
        )
        loading = self._loading
        self._table.opening_progress = lambda: loading.progress
        return loading

    @property
    def is_in_background(self) -> bool:
        return self._loading is not None

    def defers(self, hosted: HostedTopic, index: int) -> bool:
        """Whether a partition's log is opened in the background, and its role is assumed then."""
        if self._loading is None or hosted.replica(index) is not None or not self._is_assigned(hosted, index):
            return False
        is_new = not self._logs.exists((hosted.name, index))
        self._loading.add((hosted.topic_id, index), is_new=is_new)
        return True

    def open_now(self, key: Key, load_error: Exception | None = None) -> None:
        hosted = self._table.topics_by_id.get(key[0])
        if hosted is not None and key[1] < len(hosted.image.partitions):
            self._assign(hosted, key[1], load_error)
            self.opened_later(hosted.name)

    @property
    def is_complete(self) -> bool:
        """Whether nothing was left out at the end."""
        return self._loading is None or self._loading.is_complete

    async def close(self) -> None:
        if self._loading is not None:
            await self._loading.close()

    def _is_assigned(self, hosted: HostedTopic | None, index: int) -> bool:
        return (
            hosted is not None
            and index < len(hosted.image.partitions)
            and self._table.node_id in hosted.image.partitions[index].replicas
        )

    def _prepare(self, key: Key) -> Callable[[], Log] | None:
        """How to load a log that is not open, by another thread."""
        hosted = self._table.topics_by_id.get(key[0])
        if hosted is None or not self._is_assigned(hosted, key[1]) or hosted.replica(key[1]) is not None:
            return None
        return self._logs.begin_loading(hosted, key[1])

    def _loaded(self, key: Key, loaded: Log | Exception) -> None:
        place = self._logs.finish_loading(key, loaded)
        if self._is_assigned(self._table.topics_by_id.get(key[0]), key[1]):
            self.open_now(key, loaded if isinstance(loaded, Exception) else None)
        elif isinstance(loaded, Log):
            self._logs.delete(*place)  # the topic went, or was given to others, in the meantime
