"""The quotas of clients on this node: who has which, and how much of it is used.

Where there are none nothing is counted, and requests do not even pass here (`gate`). Counting begins when there is a
quota for clients in the metadata, or when somebody asks who uses what (`watch_usage`).

What a client can make us remember is bounded: so many clients and shares at most, the longest idle ones go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Call
from tidemark.broker.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    NAME_BYTES_MAX,
    NO_QUOTAS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
)
from tidemark.broker.metadata.image import Image
from tidemark.broker.quotas.allowance import NO_LIMIT, Allowance
from tidemark.broker.quotas.meter import Meter, Usage
from tidemark.broker.quotas.precedence import Share, quota_of
from tidemark.environment import monotonic
from tidemark.pacing import TokenBucket
from tidemark.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

CLIENTS_MAX: Final = 10_000
WATCHED_SECONDS: Final = 30.0  # usage is counted for so long after it was asked for
RATE_MIN: Final = 1e-9  # one in thirty years
THROTTLE_MS_MAX: Final = 2**31 - 1
FIRST_WINDOWS: Final = 0.5  # what a client that was not seen before may use at once: see docs/quotas.md

K = TypeVar("K")
V = TypeVar("V")


class _Windows(NamedTuple):
    number: int
    seconds: float

    @property
    def burst_seconds(self) -> float:
        """As in Kafka: an idle client may use what all windows but one allow, at once."""
        return max(self.number - 1, 1) * self.seconds


def milliseconds(seconds: float) -> int:
    """As an answer tells them: no more than it can."""
    return min(round(seconds * 1000), THROTTLE_MS_MAX)


class MutationQuota:
    """How many partitions a client may still create or delete (KIP-599)."""

    def __init__(self, bucket: TokenBucket | None, *, is_strict: bool) -> None:
        """A strict one refuses what comes when too much was used; another only says how long to wait."""
        self._bucket = bucket
        self._is_strict = is_strict

    def take(self, partitions: int) -> None:
        if self._bucket is None:
            return
        if self._is_strict and self._bucket.wait(monotonic()) > 0:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, monotonic())

    @property
    def throttle_time_ms(self) -> int:
        return 0 if self._bucket is None else milliseconds(self._bucket.wait(monotonic()))


class Quotas:
    def __init__(self, config: BrokerConfig) -> None:
        self.epoch = 0
        self.is_active = False  # whether requests of clients are counted
        self.counts_time = False  # and the time that they take
        self._windows = _Windows(config.quota_window_num, config.quota_window_size_seconds)
        self._controller_windows = _Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds
        )
        self._quotas: ClientQuotas = NO_QUOTAS
        self._meters: dict[tuple[Principal, str], Meter] = {}
        self._allowances: dict[tuple[str, Share], Allowance] = {}
        self._watchers: list[Callable[[], None]] = []
        self._watched_until: float | None = None

    @property
    def window_seconds(self) -> float:
        return self._windows.seconds

    # -- what counts -------------------------------------------------------

    def watch(self, watcher: Callable[[], None]) -> None:
        """`watcher()` is called when counting begins or ends."""
        self._watchers.append(watcher)

    def follow(self, old: Image, new: Image) -> None:
        if new.client_quotas is old.client_quotas:
            return
        self._quotas = new.client_quotas
        self._look_up_again()
        self._allowances = {key: each for key, each in self._allowances.items() if self._rebound(key, each)}
        self._set_activity()

    def _look_up_again(self) -> None:
        """Every client, with its next request."""
        self.epoch += 1

    def _rebound(self, key: tuple[str, Share], allowance: Allowance) -> bool:
        """Give a share its bound of now; False if it has none any more. What was used is remembered."""
        name, share = key
        found = quota_of(self._quotas, name, user=share.user or "", client_id=share.client_id or "")
        if found is None or found.share != share:
            return False
        allowance.set_rate(_per_second(name, found.bound), burst_seconds=self._windows_of(name).burst_seconds)
        return True

    def _set_activity(self) -> None:
        keys = {key for entity, values in self._quotas.items() if entity[0][0] != IP for key in values}
        is_watched = self._watched_until is not None
        before = (self.is_active, self.counts_time)
        self.is_active = is_watched or bool(keys)
        self.counts_time = is_watched or REQUEST_PERCENTAGE in keys
        if not self.is_active:
            self._meters.clear()
            self._look_up_again()  # connections that still hold one of these get another
        if before != (self.is_active, self.counts_time):
            for watcher in self._watchers:
                watcher()

    # -- clients -----------------------------------------------------------

    def meter_of(self, connection: Any) -> Meter:
        """The meter of a connection's client."""
        meter: Meter | None = connection.meter
        if meter is None or meter.epoch != self.epoch:
            meter = connection.meter = self.meter(connection.principal, connection.client_id or "")
        return meter

    def meter(self, principal: Principal, client_id: str) -> Meter:
        """With the quotas of now: whoever keeps it asks again when `epoch` is another."""
        client_id = _clipped(client_id)
        meter = self._meters.get((principal, client_id))
        if meter is None:
            self._make_room_for_client()
            meter = self._meters[principal, client_id] = Meter(principal, client_id)
        if meter.epoch != (epoch := self.epoch):  # which may change while room is made
            meter.produce = self._allowance(PRODUCER_BYTE_RATE, principal.name, client_id)
            meter.fetch = self._allowance(CONSUMER_BYTE_RATE, principal.name, client_id)
            meter.request = self._allowance(REQUEST_PERCENTAGE, principal.name, client_id)
            meter.principal = principal
            meter.epoch = epoch
        return meter

    def _allowance(self, key: str, user: str, client_id: str) -> Allowance | None:
        found = quota_of(self._quotas, key, user=user, client_id=client_id)
        if found is None:
            return None
        allowance = self._allowances.get((key, found.share))
        if allowance is None:
            self._make_room_for_share()
            windows = self._windows_of(key)
            of_partitions = key == CONTROLLER_MUTATION_RATE
            allowance = self._allowances[key, found.share] = Allowance(
                _per_second(key, found.bound),
                burst_seconds=windows.burst_seconds,
                first_seconds=windows.burst_seconds if of_partitions else FIRST_WINDOWS * windows.seconds,
                # As in Kafka, of time one window at most: a heartbeat must get through sooner or later.
                wait_seconds_max=windows.seconds if key == REQUEST_PERCENTAGE else NO_LIMIT,
            )
        return allowance

    def _windows_of(self, key: str) -> _Windows:
        return self._controller_windows if key == CONTROLLER_MUTATION_RATE else self._windows

    def _make_room_for_client(self) -> None:
        if len(self._meters) >= CLIENTS_MAX:
            self._forget_quarter(self._meters, lambda meter: meter.requests)
            for meter in self._meters.values():
                meter.requests = 0

    def _make_room_for_share(self) -> None:
        if len(self._allowances) >= CLIENTS_MAX:
            self._forget_quarter(self._allowances, lambda allowance: allowance.idle_from)

    def _forget_quarter(self, table: dict[K, V], use: Callable[[V], float]) -> None:
        """Not one by one: so that a client that changes its id all the time costs little each time."""
        for each in sorted(table, key=lambda each: use(table[each]))[: CLIENTS_MAX // 4]:
            del table[each]
        self._look_up_again()  # connections that still hold one of these get another

    def mutation(self, call: Call, *, strict_from: int) -> MutationQuota:
        """For a request that creates or deletes partitions. A node's own has no limit."""
        client = call.connection
        bucket = None
        if client is not None and self._quotas:
            bucket = self._allowance(CONTROLLER_MUTATION_RATE, client.principal.name, _clipped(call.client_id or ""))
        return MutationQuota(bucket, is_strict=call.version >= strict_from)

    # -- who uses what -----------------------------------------------------

    def watch_usage(self) -> None:
        """Count for a while, with or without quotas."""
        loop = asyncio.get_running_loop()
        was_watched, self._watched_until = self._watched_until is not None, loop.time() + WATCHED_SECONDS
        if not was_watched:
            loop.call_at(self._watched_until, self._end_watch)
            self._set_activity()

    def _end_watch(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watched_until is not None and self._watched_until > loop.time():
            loop.call_at(self._watched_until, self._end_watch)
            return
        self._watched_until = None
        self._set_activity()

    def usage(self) -> Iterable[Usage]:
        """Of every client that is known here."""
        return (meter.usage for meter in list(self._meters.values()))


def _clipped(client_id: str) -> str:
    """No quota names a longer one, and there may be many of them to remember."""
    return client_id[:NAME_BYTES_MAX]


def _per_second(key: str, bound: float) -> float:
    """Percent of the time of one event loop, as seconds per second. As little as can still be divided by."""
    return max(bound / 100 if key == REQUEST_PERCENTAGE else bound, RATE_MIN)
