"""Fetching from one leader everything that this node follows of it: one connection, one incremental session (KIP-227).

Usually one request is under way, and the leader holds it until there is something. When partitions are added or leave,
the next request is sent at once: a leader ends a fetch that it holds as soon as the session's next one arrives, so that
a partition that has just got a new leader does not wait for others' silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from tidemark.broker.config import BrokerConfig
from tidemark.broker.peers import Peers, PeerUnavailable
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.throttle import Throttle
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tidemark.protocol.records import InvalidBatch
from tidemark.storage import LogOffline, StorageError

log = logging.getLogger(__name__)

VERSION: Final = 18
PURPOSE: Final = "replication"  # a connection of its own: a fetch that waits must not hold up other requests
RETRY_SECONDS_MIN: Final = 0.02
SYNC_SECONDS_MAX: Final = 0.5  # for all that one answer brought, before those that are done go on alone
HELD_BACK_SECONDS_MAX: Final = 1.0  # then the throttle may be another, or none
NO_SESSION: Final = 0
FULL_EPOCH: Final = 0

# Over when both brokers have the same metadata: tried again soon, and not worth a line in the log.
_TRANSIENT: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

Key = tuple[bytes, int]


class _SentPosition(NamedTuple):
    """Where a partition is fetched from, as it was last sent to the leader."""

    offset: int
    leader_epoch: int
    last_epoch: int
    log_start_offset: int
    is_held_back: bool


_NEVER_SENT: Final = _SentPosition(-1, -1, -1, -1, False)


class _Signal:
    """An event, awaited alone or beside an answer; without a task of its own, as that happens for every fetch."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        self._wake()

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, answer: asyncio.Future[Any] | None = None) -> None:
        """Returns when it is set, or when the answer is there."""
        if self._is_set or (answer is not None and answer.done()):
            return
        self._waiter = asyncio.get_running_loop().create_future()
        if answer is not None:
            answer.add_done_callback(self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if answer is not None:
                answer.remove_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _forget_outcome(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()  # or asyncio would complain that nobody has looked at it


class Fetcher:
    def __init__(
        self,
        source: int,
        *,
        node_id: int,
        peers: Peers,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
        failed: Callable[[Followed, Exception], None],
        throttle: Throttle,
        is_throttled: Callable[[Followed], bool],
    ) -> None:
        self._throttle = throttle
        self._is_throttled = is_throttled
        self.source = source
        self._node_id = node_id
        self._peers = peers
        self._config = config
        self._broker_epoch = broker_epoch
        self._failed = failed
        self._followed: dict[Key, Followed] = {}
        self._sent: dict[Key, _SentPosition] = {}
        self._changed: dict[Key, None] = {}  # whose position may have to be sent again
        self._backing_off: dict[Key, asyncio.TimerHandle] = {}
        # Held back by the throttle: they stay in the session, and get nothing.
        self._held_back: dict[Key, asyncio.TimerHandle] = {}
        self._session_id = NO_SESSION
        self._session_epoch = FULL_EPOCH
        self._signal = _Signal()
        self._retry_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._asked_at: float | None = None  # when what is under way was asked for
        self._watchdog: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, followed: Followed) -> None:
        key = (followed.topic_id, followed.index)
        self._end_back_off(key)
        self._followed[key] = followed
        self._changed[key] = None
        self._signal.set()

    def remove(self, followed: Followed) -> None:
        key = (followed.topic_id, followed.index)
        if self._followed.get(key) is not followed:
            return
        self._end_back_off(key)
        del self._followed[key]
        self._changed[key] = None
        self._signal.set()

    async def stop(self) -> None:
        for handle in (*self._backing_off.values(), *self._held_back.values()):
            handle.cancel()
        self._backing_off.clear()
        self._held_back.clear()
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    # -- the loop ----------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._converse()
            except PeerUnavailable as error:
                log.info("fetching from broker %d failed: %s", self.source, error)
                await self._pause()
            except Exception:
                log.exception("fetching from broker %d failed; it is tried again", self.source)
                await self._pause()
            self._begin_session()

    async def _pause(self) -> None:
        most = self._config().replica_fetch_backoff_ms / 1000
        self._retry_seconds = min(max(self._retry_seconds * 2, RETRY_SECONDS_MIN), most)
        await asyncio.sleep(self._retry_seconds)

    async def _converse(self) -> None:
        """Fetch and process, until something goes wrong."""
        under_way: asyncio.Future[Any] | None = None
        try:
            while True:
                if under_way is None:
                    while not self._followed:
                        self._signal.clear()
                        await self._signal.wait()
                    under_way = self._ask()
                await self._signal.wait(under_way)
                if under_way.done() or not self._has_session:
                    response, under_way = await under_way, None
                    self._asked_at = None
                    await self._process(self._decoded(response))
                else:
                    following = self._ask()  # which ends the one under way
                    try:
                        response = await under_way
                    except BaseException:
                        following.cancel()
                        raise
                    under_way = following
                    await self._process(self._decoded(response))
        finally:
            self._asked_at = None
            if under_way is not None:  # not waited for: whoever ends this must not wait, nor be told what became of it
                under_way.add_done_callback(_forget_outcome)
                under_way.cancel()

    def _ask(self) -> asyncio.Future[Any]:
        """What comes of it is for `_decoded`."""
        self._signal.clear()
        config = self._config()
        link = self._peers.to_broker(self.source, purpose=PURPOSE)
        seconds_max = config.replica_socket_timeout_ms / 1000
        if not link.is_connected:
            request = self._request(config)
            return self._loop.create_task(
                link.send(request, version=VERSION, timeout=seconds_max, response=FetchResponse)
            )
        begun = link.begin(self._request(config), version=VERSION)
        assert begun is not None
        # One timer for all that is ever asked: fetches come by the thousand, and hardly any is not answered.
        self._asked_at = self._loop.time()
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(seconds_max, self._watch)
        return begun

    def _watch(self) -> None:
        """Give up a leader that does not answer."""
        self._watchdog = None
        if self._asked_at is None:
            return
        seconds_max = self._config().replica_socket_timeout_ms / 1000
        left = self._asked_at + seconds_max - self._loop.time()
        if left > 0:
            self._watchdog = self._loop.call_later(left, self._watch)
        else:
            self._peers.to_broker(self.source, purpose=PURPOSE).hang_up()

    def _decoded(self, answer: FetchResponse | memoryview) -> FetchResponse:
        if isinstance(answer, FetchResponse):
            return answer
        link = self._peers.to_broker(self.source, purpose=PURPOSE)
        return link.decoded(answer, FetchResponse, version=VERSION)

    # -- asking ------------------------------------------------------------

    @property
    def _has_session(self) -> bool:
        return self._session_id != NO_SESSION

    def _begin_session(self) -> None:
        """Forget what was sent to the leader."""
        self._session_id, self._session_epoch = NO_SESSION, FULL_EPOCH
        self._sent.clear()
        self._changed = dict.fromkeys(self._followed)

    def _request(self, config: BrokerConfig) -> FetchRequest:
        changed, self._changed = self._changed, {}
        topics: dict[bytes, FetchTopic] = {}
        forgotten: dict[bytes, ForgottenTopic] = {}
        for key in changed:
            followed = self._followed.get(key)
            if followed is None or key in self._backing_off or self._is_busy(key, followed):
                if self._sent.pop(key, None) is not None:
                    forgotten.setdefault(key[0], ForgottenTopic(topic_id=key[0])).partitions.append(key[1])
                continue
            try:
                position = _position_of(followed, is_held_back=key in self._held_back)
            except StorageError as error:
                self._back_off(key, followed, error)
                continue
            if self._sent.get(key) != position:
                self._sent[key] = position
                topics.setdefault(key[0], FetchTopic(topic_id=key[0])).partitions.append(
                    FetchPartition(
                        partition=key[1],
                        current_leader_epoch=position.leader_epoch,
                        fetch_offset=position.offset,
                        last_fetched_epoch=position.last_epoch,
                        log_start_offset=position.log_start_offset,
                        partition_max_bytes=self._bytes_max(config, followed, position),
                        high_watermark=followed.high_watermark,
                    )
                )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if self._has_session:
            self._session_epoch = 1 if self._session_epoch == 0x7FFFFFFF else self._session_epoch + 1
        return request

    def _is_busy(self, key: Key, followed: Followed) -> bool:
        """Whether a thread is at work on the log: it is asked for when that is done."""
        if followed.is_truncating:  # for the leader before, perhaps
            followed.truncated.add_done_callback(partial(self._truncated, key, followed))
            return True
        if followed.must_sync and not followed.log.is_offline:
            followed.sync().add_done_callback(partial(self._synced, key, followed))
            return True
        return False

    def _synced(self, key: Key, followed: Followed, _done: asyncio.Future[None]) -> None:
        if self._followed.get(key) is followed:
            self._changed[key] = None
            self._signal.set()

    def _bytes_max(self, config: BrokerConfig, followed: Followed, position: _SentPosition) -> int:
        if position.is_held_back:
            return 0
        most = config.replica_fetch_max_bytes
        return min(most, self._throttle.at_once) if self._is_throttled(followed) else most

    # -- processing ------------------------------------------------------------

    async def _process(self, response: FetchResponse) -> None:
        if response.error_code:
            raise PeerUnavailable(f"the fetch session is over: {ErrorCode(response.error_code).name}")
        self._retry_seconds = 0.0
        if not self._has_session and response.session_id != NO_SESSION:
            self._session_id, self._session_epoch = response.session_id, 1
        elif not self._has_session:
            self._begin_session()
        unsynced = []
        for key, followed, data in self._answers(response):
            try:
                self._process_partition(key, followed, data)
                if followed.must_sync:
                    unsynced.append(followed)
            except (StorageError, InvalidBatch, OSError) as error:
                self._back_off(key, followed, error)
        if unsynced:
            await self._sync(unsynced)

    async def _sync(self, unsynced: list[Followed]) -> None:
        """Wait until what was appended is on disk; but not for long: a disk may hang, and others go on. What is not
        synced by then is left out of the session until it is."""
        deadline = self._loop.time() + SYNC_SECONDS_MAX
        while syncs := [each.sync() for each in unsynced if each.must_sync and not each.log.is_offline]:
            left = deadline - self._loop.time()
            if left <= 0:
                return
            await asyncio.wait(syncs, timeout=left)

    def _answers(self, response: FetchResponse) -> Iterator[tuple[Key, Followed, PartitionData]]:
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = self._followed.get(key)
                sent = self._sent.get(key)
                # Answers about an epoch or a position that we have left behind say nothing.
                if followed is None or followed.is_truncating or sent is None:
                    continue
                if sent.leader_epoch == followed.leader_epoch:
                    yield key, followed, data

    def _process_partition(self, key: Key, followed: Followed, data: PartitionData) -> None:
        self._changed[key] = None
        if data.error_code:
            self._refused(key, followed, data)
            return
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch
            done = followed.truncate_to_leader(epoch=diverging.epoch, end_offset=diverging.end_offset)
            done.add_done_callback(partial(self._truncated, key, followed))
            return
        if data.records:
            if not followed.append_fetched(data.records):  # type: ignore[arg-type]
                return
            if self._is_throttled(followed):
                self._throttle.spent(len(data.records), self._loop.time())  # type: ignore[arg-type]
                self._hold_back(key)
        followed.failures = 0
        followed.apply_leader_offsets(high_watermark=data.high_watermark, log_start_offset=data.log_start_offset)

    def _refused(self, key: Key, followed: Followed, data: PartitionData) -> None:
        code = ErrorCode(data.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and followed.is_beyond_leader(log_start_offset=data.log_start_offset):
            followed.restart_at(data.log_start_offset).add_done_callback(partial(self._truncated, key, followed))
            return
        if code not in _TRANSIENT:
            log.warning("%s-%d cannot be fetched from %d: %s", followed.topic, followed.index, self.source, code.name)
        self._back_off(key, followed, None)

    def _truncated(self, key: Key, followed: Followed, done: asyncio.Future[None]) -> None:
        """Another thread is done with the log: it is fetched again. Other partitions have not waited."""
        error = None if done.cancelled() else done.exception()
        if self._followed.get(key) is not followed:
            return  # another fetcher has it by now, and asks for itself
        if isinstance(error, Exception):
            self._back_off(key, followed, error)
        self._changed[key] = None
        self._signal.set()

    def _hold_back(self, key: Key) -> None:
        """If too much came of all that is throttled, it waits."""
        wait = self._throttle.wait(self._loop.time())
        if wait > 0 and key not in self._held_back:
            self._held_back[key] = self._loop.call_later(min(wait, HELD_BACK_SECONDS_MAX), self._end_hold_back, key)

    def _end_hold_back(self, key: Key) -> None:
        self._held_back.pop(key, None)
        followed = self._followed.get(key)
        if followed is not None and self._is_throttled(followed):
            self._hold_back(key)
        if key not in self._held_back:
            self._changed[key] = None
            self._signal.set()

    # -- partitions that have to wait ------------------------------------------

    def _back_off(self, key: Key, followed: Followed, error: Exception | None) -> None:
        """Leave a partition out for a while."""
        followed.failures += 1
        if error is not None:
            log.error("%s-%d cannot be followed: %s", followed.topic, followed.index, error)
            if isinstance(error, LogOffline):
                self._failed(followed, error)
        most = self._config().replica_fetch_backoff_ms / 1000
        seconds = min(RETRY_SECONDS_MIN * 2 ** min(followed.failures - 1, 10), most)
        self._end_back_off(key)
        self._backing_off[key] = self._loop.call_later(seconds, self._backed_off, key)
        self._changed[key] = None

    def _backed_off(self, key: Key) -> None:
        self._backing_off.pop(key, None)
        if key in self._sent:  # nothing was sent in the meantime
            self._sent[key] = _NEVER_SENT
        self._changed[key] = None
        self._signal.set()

    def _end_back_off(self, key: Key) -> None:
        handle = self._backing_off.pop(key, None)
        if handle is not None:
            handle.cancel()


def _position_of(followed: Followed, *, is_held_back: bool) -> _SentPosition:
    log = followed.log
    log.check_online()
    return _SentPosition(log.end_offset, followed.leader_epoch, log.latest_epoch, log.start_offset, is_held_back)
