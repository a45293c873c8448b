"""Clients that push metrics: what each is asked for, when it may speak, and what it said last (KIP-714).

What clients can make us remember is bounded: so many instances, and so many series of all of them together. When there
is no room for another, one that has fallen silent goes first, and then one of whoever has most of them: a flood of new
ids from one address takes nothing from the clients of others.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.owners import Owner, Owners
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.telemetry.otlp import InvalidTelemetry, Point, points
from tidemark.broker.telemetry.subscriptions import Client, Subscription, Wanted, subscriptions, wanted_of
from tidemark.environment import random_bytes
from tidemark.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, DecompressionError, TooLarge, decompress
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.schema import ZERO_UUID

ACCEPTED: Final = (ZSTD, LZ4, GZIP, SNAPPY)  # the first that a client knows is used
INSTANCES_MAX: Final = 10_000
INSTANCE_SERIES_MAX: Final = 1_000
EXPANDED: Final = 4  # times telemetry.max.bytes, that a compressed push may grow to
INLINE_BYTES_MAX: Final = 4_096  # more are decompressed and read by a thread
SILENT_INTERVALS: Final = 3  # after which a client's figures are no longer told
PARDONED: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

Forward = Callable[[Client, bytes], None]
Series = tuple[str, tuple[tuple[str, str], ...]]


class Instance:
    __slots__ = (
        "client",
        "got_at",
        "is_terminated",
        "last_error",
        "owner",
        "pushed_at",
        "series",
        "subscriptions",
        "wanted",
    )

    def __init__(self, client: Client, owner: Owner[bytes], known: list[Subscription], wanted: Wanted) -> None:
        self.client = client
        self.owner = owner
        self.subscriptions = known  # by which it was decided what is wanted
        self.wanted = wanted
        self.got_at = self.pushed_at = float("-inf")
        self.last_error = ErrorCode.NONE
        self.is_terminated = False
        self.series: dict[Series, float] = {}

    def may_get(self, now: float) -> bool:
        since = now - max(self.got_at, self.pushed_at)
        return since * 1000 >= self.wanted.interval_ms or self.last_error in PARDONED

    def may_push(self, now: float) -> bool:
        return self.got_at > self.pushed_at or (now - self.pushed_at) * 1000 >= self.wanted.interval_ms

    def is_silent(self, now: float) -> bool:
        return (now - self.pushed_at) * 1000 > SILENT_INTERVALS * self.wanted.interval_ms

    def is_gone(self, now: float) -> bool:
        """It does not even ask any more."""
        return (now - max(self.got_at, self.pushed_at)) * 1000 > SILENT_INTERVALS * self.wanted.interval_ms


class Telemetry:
    def __init__(
        self, store: MetadataStore, settings: DynamicConfig, *, clock: Callable[[], float], forward: Forward | None
    ) -> None:
        """`forward`: where pushes go to as they are, besides."""
        self._store = store
        self._settings = settings
        self._clock = clock
        self._forward = forward
        self._configs: object = None
        self._known: list[Subscription] = []
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()  # the longest silent first
        self._owners: Owners[bytes] = Owners()  # of instances, with the number of their series
        self._series_count = 0
        self.refusals: Counter[ErrorCode] = Counter()
        self.pushes = 0

    @property
    def max_bytes(self) -> int:
        return self._settings.current.telemetry_max_bytes

    @property
    def is_wanted(self) -> bool:
        """Whether clients are told that they can push: librdkafka writes a line to its user's log when it learns that.
        Those that are connected before there is a subscription learn of it when they connect again."""
        return bool(self._current())

    # -- requests ----------------------------------------------------------

    def subscribe(self, instance_id: bytes, call: Any) -> tuple[bytes, Wanted]:
        """The id of the client's instance, a new one if it has none, and what it is asked for. Raises Refused."""
        if instance_id == ZERO_UUID:
            instance_id = random_bytes(16)
        instance, now = self._instance(instance_id, call), self._clock()
        if not instance.may_get(now):
            raise self._refused(instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "It asks again too soon.")
        instance.got_at, instance.last_error = now, ErrorCode.NONE
        return instance_id, instance.wanted

    async def push(
        self, instance_id: bytes, call: Any, *, subscription_id: int, codec: int, data: bytes, terminating: bool
    ) -> None:
        """Raises Refused."""
        if instance_id == ZERO_UUID:
            raise Refused(ErrorCode.INVALID_REQUEST, "A push needs the id of a client's instance.")
        instance, now = self._instance(instance_id, call), self._clock()
        if instance.is_terminated:
            raise self._refused(instance, ErrorCode.INVALID_REQUEST, "It has pushed for the last time.")
        may_push = instance.may_push(now)
        if not may_push and not terminating:
            raise self._refused(instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "It pushes too soon.")
        instance.pushed_at = now
        if subscription_id != instance.wanted.subscription_id:
            raise self._refused(instance, ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "It is asked for something else now.")
        if codec not in (NONE, *ACCEPTED):
            raise self._refused(instance, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no codec {codec}.")
        if len(data) > self.max_bytes:
            raise self._refused(instance, ErrorCode.TELEMETRY_TOO_LARGE, f"Over {self.max_bytes} bytes.")
        instance.is_terminated = terminating
        try:
            await self._take(instance_id, instance, codec, data)
        except TooLarge as error:
            raise self._refused(instance, ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from None
        except (DecompressionError, InvalidTelemetry) as error:
            raise self._refused(instance, ErrorCode.INVALID_RECORD, str(error)) from None
        self.pushes += 1
        instance.last_error = ErrorCode.NONE

    def _refused(self, instance: Instance, code: ErrorCode, why: str) -> Refused:
        instance.last_error = code
        self.refusals[code] += 1
        return Refused(code, why)

    async def _take(self, instance_id: bytes, instance: Instance, codec: int, data: bytes) -> None:
        limit = EXPANDED * self.max_bytes
        if len(data) <= INLINE_BYTES_MAX and codec == NONE:
            plain, found = _read(codec, data, limit)
        else:
            plain, found = await asyncio.get_running_loop().run_in_executor(None, _read, codec, data, limit)
        if self._forward is not None and plain:
            self._forward(instance.client, plain)
        if self._instances.get(instance_id) is not instance:
            return  # it was forgotten meanwhile, with its series: nobody would count these off again
        if not instance.is_terminated:
            self._note(instance, found)
        else:
            self._forget_series(instance)

    # -- what they said ----------------------------------------------------

    def _note(self, instance: Instance, found: list[Point]) -> None:
        series, limit = instance.series, self._settings.current.tidemark_telemetry_series_max
        if self._series_count + len(found) > limit:
            new = {(point.name, point.attributes) for point in found} - series.keys()
            self._make_room_for_series(instance.owner, min(len(new), INSTANCE_SERIES_MAX - len(series)), limit)
        for point in found:
            key = (point.name, point.attributes)
            if key in series:
                series[key] = series[key] + point.value if point.is_delta else point.value
            elif len(series) < INSTANCE_SERIES_MAX and self._series_count < limit:
                series[key] = point.value
                self._series_count += 1
                instance.owner.size += 1

    def _make_room_for_series(self, owner: Owner[bytes], count: int, limit: int) -> None:
        """Whoever has more than this one will have then gives up those of an instance."""
        while self._series_count + count > limit:
            most = self._owners.largest(owner, count)
            if most is None:
                return
            self._forget_series(max(map(self._instances.__getitem__, most.items), key=lambda each: len(each.series)))

    def _forget_series(self, instance: Instance) -> None:
        self._series_count -= len(instance.series)
        instance.owner.size -= len(instance.series)
        instance.series = {}

    def told(self) -> Iterator[Instance]:
        """The clients that have pushed lately. Others' figures are forgotten."""
        now = self._clock()
        for instance in list(self._instances.values()):
            if instance.series and instance.is_silent(now):
                self._forget_series(instance)
            yield instance

    @property
    def instance_count(self) -> int:
        return len(self._instances)

    # -- instances ---------------------------------------------------------

    def _current(self) -> list[Subscription]:
        if (configs := self._store.image.configs) is not self._configs:
            self._configs, self._known = configs, subscriptions(configs)
        return self._known

    def _instance(self, instance_id: bytes, call: Any) -> Instance:
        known, instance = self._current(), self._instances.get(instance_id)
        if instance is None:
            owner = self._owners.of(call.connection)
            self._make_room(owner)
            client = _client(instance_id, call)
            instance = Instance(client, owner, known, wanted_of(client, known, instance_id))
            self._instances[instance_id] = instance
            self._owners.add(owner, instance_id)
        elif instance.subscriptions is not known:
            instance.subscriptions = known
            instance.wanted = wanted_of(instance.client, known, instance_id)
        self._instances.move_to_end(instance_id)
        instance.owner.items.move_to_end(instance_id)
        return instance

    def _make_room(self, owner: Owner[bytes]) -> None:
        """For one more instance of this owner. Raises Refused."""
        if len(self._instances) < INSTANCES_MAX:
            return
        oldest_id, oldest = next(iter(self._instances.items()))
        if not oldest.is_gone(self._clock()):
            most = self._owners.with_most(owner)
            if most is None:
                self.refusals[ErrorCode.THROTTLING_QUOTA_EXCEEDED] += 1
                raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Nobody of all who are known has several.")
            oldest_id = next(iter(most.items))
        forgotten = self._instances.pop(oldest_id)
        self._forget_series(forgotten)
        self._owners.remove(forgotten.owner, oldest_id)


def _client(instance_id: bytes, call: Any) -> Client:
    name, _, version = call.connection.client_software.partition(" ")
    host, _, port = call.connection.peer.rpartition(":")
    shown = urlsafe_b64encode(instance_id).decode().rstrip("=")  # as Kafka's Uuid
    return Client(shown, call.client_id or "", name, version, host, port)


def _read(codec: int, data: bytes, limit_bytes: int) -> tuple[bytes, list[Point]]:
    plain = decompress(codec, data, limit_bytes=limit_bytes)
    return bytes(plain), points(plain)
