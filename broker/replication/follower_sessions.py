"""The fetch sessions of the brokers that follow this one: one for each registered broker, and for no other client.

A replica proves itself by its id and its exact broker epoch (KIP-903). Requests before v15 carry no epoch, and are
refused: our own followers use the newest version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import Refused
from tidemark.broker.replication.fetch_session import INITIAL_EPOCH, new_session_id, unknown_session
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.environment import new_random
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState

if TYPE_CHECKING:
    from tidemark.broker.replication.follower_progress import FollowerProgress
    from tidemark.broker.replication.follower_session import FollowerSession


class FollowerSessions:
    def __init__(self, table: ReplicaTable, progress: FollowerProgress) -> None:
        self._table = table
        self._progress = progress
        self._sessions: dict[int, FollowerSession] = {}
        self._random = new_random()

    def fetch(self, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse]:
        try:
            self._check_replica(request.replica_state)
            return self._session(request).fetch(request)
        except Refused as refusal:
            return FetchResponse(error_code=refusal.code)

    def _check_replica(self, replica: ReplicaState) -> None:
        broker = self._table.image.brokers.get(replica.replica_id)
        if broker is None or replica.replica_id == self._table.node_id:
            raise Refused(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"{replica.replica_id} is no other broker of this cluster"
            )
        if replica.replica_epoch != broker.broker_epoch:
            message = f"broker {replica.replica_id} fetches with epoch {replica.replica_epoch}, which is not its own"
            raise Refused(ErrorCode.STALE_BROKER_EPOCH, message)

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

    def close_unregistered(self) -> None:
        """Sessions of brokers that the cluster does not have any more."""
        for node_id in [each for each in self._sessions if each not in self._table.image.brokers]:
            self._sessions.pop(node_id).close()

    def is_heard(self, node_id: int, *, now: float, silence_max: float) -> bool:
        """Whether a broker has fetched lately."""
        session = self._sessions.get(node_id)
        return session is not None and now - session.last_fetch.at <= silence_max

    def end_waits(self) -> None:
        for session in self._sessions.values():
            session.finish()
