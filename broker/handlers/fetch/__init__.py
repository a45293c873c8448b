"""Fetch (API 1): read batches from partitions, now or when there are enough of them.

Behaviour
- An answer waits until there are `min_bytes` to read, or for `max_wait_ms`; an error or a divergence ends the wait.
- `max_bytes` and `partition_max_bytes` are soft for the very first batch, which is returned even when it is larger, so
  that a reader always gets on.
- A consumer sees nothing at or above the high watermark, and a read_committed one nothing at or above the last stable
  offset.
- What is read is file slices; their bytes never come into this process. What is not in the page cache is brought there
  by other threads: where the slices lie, here; what they hold, when they are sent.
- A replica's fetch (`replica_id` of a broker) is answered by `replication.follower_sessions`.

Versions
- v4: isolation_level, aborted transactions and the last stable offset (KIP-98); max_bytes limits the request (KIP-74).
- v5: log_start_offset (KIP-107).
- v7: incremental fetch sessions (KIP-227).
- v9: current_leader_epoch, for fencing (KIP-320).
- v11: rack_id and preferred_read_replica: consumers may read from followers (KIP-392).
- v12: last_fetched_epoch and diverging_epoch (KIP-595).
- v13: topic ids instead of names (KIP-516).
- v15: replica_state with the broker epoch instead of replica_id (KIP-903).
- v16: node_endpoints, where the leader is now (KIP-951).
- v17: a follower's directory id (KIP-853).
- v18: a follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.deferred import Answer, Deferred, awaited
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.handlers.fetch.reading import Reading
from tidemark.broker.handlers.fetch.sessions import FetchSessions, Key, ReadPosition, positions
from tidemark.broker.handlers.fetch.waiting import WaitingFetch
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.replication.follower_sessions import FollowerSessions
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tidemark.broker.security.guard import Guard

SESSIONS_FROM: Final = 7
PARTITIONS_AT_ONCE_MAX: Final = 2_000  # more are read in slices of time
RACK_AWARE: Final = "RackAwareReplicaSelector"


@handles(FetchRequest, FetchResponse, in_parts=True)
def fetch(
    request: FetchRequest,
    call: Call,
    *,
    replicas: ReplicaTable,
    fetch_sessions: FetchSessions,
    follower_sessions: FollowerSessions,
    settings: DynamicConfig,
    guard: Guard | None,
) -> Answer[FetchResponse]:
    if request.replica_state.replica_id >= 0:
        call.connection.become_peer()
        return follower_sessions.fetch(request)
    if call.version < SESSIONS_FROM:
        request.session_epoch = -1
    if sum(len(topic.partitions) or 1 for topic in request.topics) > PARTITIONS_AT_ONCE_MAX:
        return _fetch_large(request, call, replicas, fetch_sessions, settings, guard)
    return _fetch(request, call, replicas, fetch_sessions, settings, guard)


def _fetch_large(
    request: FetchRequest,
    call: Call,
    replicas: ReplicaTable,
    fetch_sessions: FetchSessions,
    settings: DynamicConfig,
    guard: Guard | None,
) -> Job[FetchResponse | Deferred[FetchResponse] | Awaitable[FetchResponse]]:
    asked = yield from positions(request, call.version)
    return _fetch(request, call, replicas, fetch_sessions, settings, guard, asked)


def _fetch(
    request: FetchRequest,
    call: Call,
    replicas: ReplicaTable,
    fetch_sessions: FetchSessions,
    settings: DynamicConfig,
    guard: Guard | None,
    asked: OrderedDict[Key, ReadPosition] | None = None,
) -> FetchResponse | Deferred[FetchResponse] | Awaitable[FetchResponse]:
    try:
        session, wanted, incremental = fetch_sessions.resolve(request, call.version, call.connection.principal, asked)
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code)
    limit_bytes = min(request.max_bytes, settings.current.fetch_max_bytes)
    reading = Reading(request, call, session, wanted, incremental, replicas, limit_bytes)
    if guard is not None:
        reading.may_read = guard.may_read(call)
    if request.rack_id and (settings.current.replica_selector_class or "").endswith(RACK_AWARE):
        reading.rack = request.rack_id
    if len(wanted) > PARTITIONS_AT_ONCE_MAX:
        return _fetch_many(reading)
    reading.read()
    return _answer(reading) if not reading.cold else _fetch_cold(reading)


async def _fetch_many(reading: Reading) -> FetchResponse:
    await reading.read_in_slices()
    if reading.cold:
        await reading.read_cold()
    if reading.is_due or reading.request.max_wait_ms <= 0:
        return await reading.response_in_slices()
    return await awaited(WaitingFetch(reading, reading.request.max_wait_ms).answer)


async def _fetch_cold(reading: Reading) -> FetchResponse:
    if reading.cold:
        await reading.read_cold()
    return await awaited(_answer(reading))


def _answer(reading: Reading) -> FetchResponse | Deferred[FetchResponse]:
    if reading.is_due or reading.request.max_wait_ms <= 0:
        return reading.response()
    return WaitingFetch(reading, reading.request.max_wait_ms).answer
