"""Fetch sessions (KIP-227): a client names its partitions once, and from then on only what changes travels.

A session remembers, per partition, where the client wants to read and what it was last told.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchRequest, FetchTopic, PartitionData

TOPIC_IDS_FROM: Final = 13
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF

TopicKey = str | bytes  # a name before version 13, an id from then on
Key = tuple[TopicKey, int]


class Wanted:
    """One partition that a client reads."""

    __slots__ = (
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "limit_bytes",
        "told_high_watermark",
        "told_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, index: int) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = 0
        self.limit_bytes = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.told_high_watermark = -1
        self.told_start_offset = -1

    def has_news(self, data: PartitionData) -> bool:
        """Whether an incremental answer must mention this partition. Remembers what is told."""
        news = bool(
            data.records
            or data.error_code
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_start_offset
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )
        if data.error_code:
            self.told_high_watermark = -1  # tell it again when it is well
        else:
            self.told_high_watermark = data.high_watermark
            self.told_start_offset = data.log_start_offset
        return news


class Session:
    __slots__ = ("by_id", "epoch", "partitions", "session_id", "used_at")

    def __init__(self, session_id: int, *, by_id: bool, used_at: float) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = INITIAL_EPOCH
        self.used_at = used_at
        self.partitions: OrderedDict[Key, Wanted] = OrderedDict()

    def rotate(self, served: Iterable[Wanted]) -> None:
        """Who got data goes to the end, so that no partition starves behind a busy one."""
        for wanted in served:
            key = (wanted.topic, wanted.index)
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchSessions:
    def __init__(self, *, slots_max: int, evict_after_seconds: float = 120.0, time: Callable[[], float]) -> None:
        self._slots_max = slots_max
        self._evict_after_seconds = evict_after_seconds
        self._time = time
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first
        self._random = random.Random()

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, version: int) -> tuple[Session | None, list[Wanted], bool]:
        """(the session, what to read, whether the answer is incremental)."""
        by_id = version >= TOPIC_IDS_FROM
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            wanted = list(_update({}, request.topics, by_id=by_id).values())
            if request.session_epoch == FINAL_EPOCH:
                return None, wanted, False
            return self._open(wanted, by_id=by_id), wanted, False
        return self._continue(request, by_id=by_id)

    def _continue(self, request: FetchRequest, *, by_id: bool) -> tuple[Session, list[Wanted], bool]:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if request.session_epoch != session.epoch:
            raise Refused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {request.session_id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if by_id != session.by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session uses either names or ids of topics")
        _update(session.partitions, request.topics, by_id=by_id)
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                session.partitions.pop((gone.topic_id if by_id else gone.topic, index), None)
        session.epoch = _next_epoch(session.epoch)
        session.used_at = self._time()
        self._sessions.move_to_end(session.session_id)
        return session, list(session.partitions.values()), True

    def _open(self, wanted: list[Wanted], *, by_id: bool) -> Session | None:
        """A new session, unless there is no room for one: then the client goes on without, as KIP-227 allows."""
        if not wanted or not self._make_room():
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, EPOCH_MAX)
        session = Session(session_id, by_id=by_id, used_at=self._time())
        session.epoch = _next_epoch(INITIAL_EPOCH)
        session.partitions.update(((each.topic, each.index), each) for each in wanted)
        self._sessions[session_id] = session
        return session

    def _make_room(self) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or self._time() - oldest.used_at < self._evict_after_seconds:
            return False
        del self._sessions[oldest.session_id]
        return True


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _update(partitions: dict[Key, Wanted], topics: Iterable[FetchTopic], *, by_id: bool) -> dict[Key, Wanted]:
    for topic in topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            key = (name, asked.partition)
            wanted = partitions.get(key)
            if wanted is None:
                wanted = partitions[key] = Wanted(name, asked.partition)
            wanted.fetch_offset = asked.fetch_offset
            wanted.limit_bytes = asked.partition_max_bytes
            wanted.leader_epoch = asked.current_leader_epoch
            wanted.last_fetched_epoch = asked.last_fetched_epoch
    return partitions
