"""Fetch sessions (KIP-227): a client names its partitions once, and from then on only what changes travels.

A session remembers, per partition, where the client wants to read and what it was last sent. It is its principal's:
whoever else knows or guesses its id can neither go on with it, and so learn what somebody reads, nor end it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import ANONYMOUS, Principal
from tidemark.broker.core.sliced_work import Job, at_once
from tidemark.broker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionEpoch,
    new_session_id,
    unknown_session,
)
from tidemark.environment import new_random
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchRequest, PartitionData

TOPIC_IDS_FROM: Final = 13
PARTITIONS_MAX: Final = 300_000  # about 100 MB: a partition of a session costs about 330 bytes

TopicKey = str | bytes  # a name before version 13, an id from then on
Key = tuple[TopicKey, int]


class ReadPosition:
    """One partition that a client reads."""

    __slots__ = (
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "limit_bytes",
        "sent_high_watermark",
        "sent_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, index: int) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = 0
        self.limit_bytes = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.sent_high_watermark = -1
        self.sent_start_offset = -1

    def move_to(self, asked: ReadPosition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.limit_bytes = asked.limit_bytes
        self.leader_epoch = asked.leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def has_news(self, data: PartitionData) -> bool:
        """Whether an incremental answer must mention this partition. Remembers what is sent."""
        news = bool(
            data.records
            or data.error_code
            or data.high_watermark != self.sent_high_watermark
            or data.log_start_offset != self.sent_start_offset
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )
        if data.error_code:
            self.sent_high_watermark = -1  # sent again when it is well
        else:
            self.sent_high_watermark = data.high_watermark
            self.sent_start_offset = data.log_start_offset
        return news


class Session:
    __slots__ = ("by_id", "epoch", "owner", "partitions", "used_at")

    def __init__(self, session_id: int, owner: Principal, *, by_id: bool, used_at: float) -> None:
        self.epoch = SessionEpoch(session_id)
        self.owner = owner
        self.by_id = by_id
        self.used_at = used_at
        self.partitions: OrderedDict[Key, ReadPosition] = OrderedDict()

    @property
    def session_id(self) -> int:
        return self.epoch.session_id

    def rotate(self, served: Iterable[ReadPosition]) -> None:
        """A partition that yielded data goes to the end, so that none starves behind a busy one."""
        for wanted in served:
            key = (wanted.topic, wanted.index)
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchSessions:
    def __init__(
        self,
        *,
        slots_max: int,
        partitions_max: int = PARTITIONS_MAX,
        evict_after_seconds: float = 120.0,
        time: Callable[[], float],
    ) -> None:
        """At most `slots_max` sessions, with `partitions_max` partitions in all of them together."""
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._partitions = 0
        self._evict_after_seconds = evict_after_seconds
        self._time = time
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first
        self._random = new_random()

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self,
        request: FetchRequest,
        version: int,
        owner: Principal = ANONYMOUS,
        asked: OrderedDict[Key, ReadPosition] | None = None,
    ) -> tuple[Session | None, list[ReadPosition], bool]:
        """(the session, what to read, whether the answer is incremental). `asked`: the request's `positions`, if it is
        so large that they were made in slices."""
        by_id = version >= TOPIC_IDS_FROM
        if asked is None:
            asked = at_once(positions(request, version))
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner is not owner and session.owner != owner:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._close(session.session_id)
            wanted = list(asked.values())
            if request.session_epoch == FINAL_EPOCH:
                return None, wanted, False
            return self._open(owner, asked, by_id=by_id), wanted, False
        if session is None:
            raise unknown_session(request.session_id)
        return self._continue(session, request, asked, by_id=by_id)

    def _continue(
        self, session: Session, request: FetchRequest, asked: OrderedDict[Key, ReadPosition], *, by_id: bool
    ) -> tuple[Session, list[ReadPosition], bool]:
        session.epoch.check(request)
        if by_id != session.by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session uses either names or ids of topics")
        self._partitions -= len(session.partitions)
        for key, position in asked.items():
            session.partitions.setdefault(key, position).move_to(position)
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                session.partitions.pop((gone.topic_id if by_id else gone.topic, index), None)
        self._partitions += len(session.partitions)
        if self._partitions > self._partitions_max:
            self._close(session.session_id)  # the client names its partitions again, and goes on without a session
            raise unknown_session(session.session_id)
        session.epoch.advance()
        session.used_at = self._time()
        self._sessions.move_to_end(session.session_id)
        return session, list(session.partitions.values()), True

    def _open(self, owner: Principal, wanted: OrderedDict[Key, ReadPosition], *, by_id: bool) -> Session | None:
        """A new session, unless there is no room for one: then the client goes on without, as KIP-227 allows."""
        if not wanted or not self._make_room(len(wanted)):
            return None
        session_id = new_session_id(self._random, self._sessions)
        session = Session(session_id, owner, by_id=by_id, used_at=self._time())
        session.partitions = wanted
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _make_room(self, partitions: int) -> bool:
        """For one more session; those that were not used for long make room."""
        if partitions > self._partitions_max:
            return False
        while len(self._sessions) >= self._slots_max or self._partitions + partitions > self._partitions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or self._time() - oldest.used_at < self._evict_after_seconds:
                return False
            self._close(oldest.session_id)
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)


def positions(request: FetchRequest, version: int) -> Job[OrderedDict[Key, ReadPosition]]:
    """What a request names, and where it wants to read there."""
    by_id = version >= TOPIC_IDS_FROM
    found: OrderedDict[Key, ReadPosition] = OrderedDict()
    for topic in request.topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            position = found[name, asked.partition] = ReadPosition(name, asked.partition)
            position.fetch_offset = asked.fetch_offset
            position.limit_bytes = asked.partition_max_bytes
            position.leader_epoch = asked.current_leader_epoch
            position.last_fetched_epoch = asked.last_fetched_epoch
            yield
    return found
