"""The fetch sessions of the brokers that follow this one: one for each."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import Refused
from tidemark.broker.replication.fetch_session import INITIAL_EPOCH, new_session_id, unknown_session
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tidemark.broker.replication.follower_progress import FollowerProgress
    from tidemark.broker.replication.follower_session import FollowerSession


class FollowerSessions:
    def __init__(self, table: ReplicaTable, progress: FollowerProgress) -> None:
        self._table = table
        self._progress = progress
        self._sessions: dict[int, FollowerSession] = {}
        self._random = Random()

    def fetch(self, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse]:
        try:
            return self._session(request).fetch(request)
        except Refused as refusal:
            return FetchResponse(error_code=refusal.code)

    def _session(self, request: FetchRequest) -> FollowerSession:
        node_id = request.replica_state.replica_id
        if request.session_epoch == INITIAL_EPOCH:
            return self._open(node_id)
        session = self._sessions.get(node_id)
        if session is None or session.epoch.session_id != request.session_id:
            raise unknown_session(request.session_id)
        session.epoch.check(request)
        session.epoch.advance()
        return session

    def _open(self, node_id: int) -> FollowerSession:
        from tidemark.broker.replication.follower_session import FollowerSession  # a node that is alone does without

        session = self._sessions.pop(node_id, None)
        if session is not None:
            session.close()
        session_id = new_session_id(self._random, ())
        session = self._sessions[node_id] = FollowerSession(self._table, self._progress, node_id, session_id)
        return session

    def is_heard(self, node_id: int, *, now: float, silence_max: float) -> bool:
        """Whether a broker has fetched lately."""
        session = self._sessions.get(node_id)
        return session is not None and now - session.pulse.at <= silence_max

    def end_waits(self) -> None:
        for session in self._sessions.values():
            session.finish()
