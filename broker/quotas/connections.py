"""How fast clients may connect (KIP-612): each address, each listener, and the broker altogether.

A connection that a listener or the broker is not ready for yet waits its turn, unread; one that would wait longer than
a client does is closed, or a flood would shut out all who come after it. One of an address that is over its quota is
closed, after a moment in which its client cannot try again. The controller's listener has no limit; the
listener between brokers, if clients have others, has only its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidemark.broker.config import BrokerConfig
from tidemark.broker.config.broker import KEYS
from tidemark.broker.config.key import INT_MAX
from tidemark.broker.config.listener_overrides import overrides_of
from tidemark.broker.metadata.client_quotas import CONNECTION_CREATION_RATE, IP, NO_QUOTAS, ClientQuotas
from tidemark.broker.metadata.image import Image
from tidemark.broker.quotas.precedence import quota_of_address
from tidemark.pacing import TokenBucket

ADDRESSES_MAX: Final = 10_000
WAIT_SECONDS_MAX: Final = 10.0  # librdkafka's api.version.request.timeout.ms
KEY: Final = "max.connection.creation.rate"
BROKER: Final = ""  # among listeners: all of them


class Admission(NamedTuple):
    """Of a new connection."""

    is_refused: bool = False
    seconds: float = 0.0  # until it is read from, or closed


AT_ONCE: Final = Admission()


class ConnectionRates:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._seconds: float = config.quota_window_size_seconds
        self._burst_seconds = max(config.quota_window_num - 1, 1) * self._seconds
        self._quotas: ClientQuotas = NO_QUOTAS
        self._addresses: dict[str, TokenBucket] = {}
        self._listeners: dict[str, TokenBucket] = {}
        self._unlimited = frozenset(config.controller_listener_names)
        names = [listener.name for listener in config.parsed_listeners]
        self._names = names
        self._protected = config.parsed_inter_broker_listener_name if len(names) > 1 else None
        self.configure(config)

    def configure(self, config: BrokerConfig, _image: Image | None = None) -> None:
        """From now on these settings count."""
        rates = {BROKER: config.max_connection_creation_rate}
        for name in self._names:
            if KEY in (own := overrides_of(config.overrides, KEYS, listener=name)):
                rates[name] = int(own[KEY])
        limited = {name: rate for name, rate in rates.items() if rate < INT_MAX}
        self._listeners = {name: self._bucket(self._listeners.get(name), rate) for name, rate in limited.items()}

    def follow(self, old: Image, new: Image) -> None:
        if new.client_quotas is old.client_quotas:
            return
        self._quotas = {entity: each for entity, each in new.client_quotas.items() if entity[0][0] == IP}
        for address in list(self._addresses):
            rate = quota_of_address(self._quotas, CONNECTION_CREATION_RATE, address)
            if rate is None:
                del self._addresses[address]
            else:
                self._bucket(self._addresses[address], rate)

    def _bucket(self, bucket: TokenBucket | None, rate: float) -> TokenBucket:
        if bucket is None:
            return TokenBucket(rate, burst_seconds=self._burst_seconds, first_seconds=self._seconds)
        bucket.set_rate(rate, burst_seconds=self._burst_seconds)
        return bucket

    def admit(self, listener: str, address: str, now: float) -> Admission:
        """Count a new connection, and say what becomes of it."""
        if listener in self._unlimited or not (self._quotas or self._listeners):
            return AT_ONCE
        is_protected = listener == self._protected
        if self._quotas and not is_protected and (seconds := self._over_quota(address, now)):
            return Admission(is_refused=True, seconds=min(seconds, self._seconds))
        limits = [
            self._listeners[name]
            for name in (listener, BROKER)
            if name in self._listeners and not (is_protected and name == BROKER)
        ]
        if any(limit.wait(now) > WAIT_SECONDS_MAX for limit in limits):
            return Admission(is_refused=True, seconds=self._seconds)
        return Admission(seconds=max((limit.take(1, now) for limit in limits), default=0.0))

    def _over_quota(self, address: str, now: float) -> float:
        """0: it is not, and this connection counts. One that is refused does not."""
        rate = quota_of_address(self._quotas, CONNECTION_CREATION_RATE, address)
        if rate is None:
            return 0.0
        bucket = self._addresses.get(address)
        if bucket is None:
            self._make_room()
            bucket = self._addresses[address] = self._bucket(None, rate)
        if (seconds := bucket.wait(now)) == 0.0:
            bucket.take(1, now)
        return seconds

    def _make_room(self) -> None:
        if len(self._addresses) >= ADDRESSES_MAX:
            idlest = sorted(self._addresses, key=lambda each: self._addresses[each].idle_from)
            for address in idlest[: ADDRESSES_MAX // 4]:
                del self._addresses[address]
