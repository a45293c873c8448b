"""What one client (a user with a client id) has used, and the buckets that it draws from."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.broker.core.principal import Principal
from tidemark.pacing import TokenBucket


class Usage(NamedTuple):
    """What a client has used since it is known here: sums, from which rates are made."""

    user: str
    client_id: str
    produced_bytes: int
    fetched_bytes: int
    request_seconds: float
    throttled: int  # answers that told it to wait
    throttle_seconds: float  # for how long altogether


class Meter:
    __slots__ = (
        "client_id",
        "epoch",
        "fetch",
        "fetched_bytes",
        "principal",
        "produce",
        "produced_bytes",
        "request",
        "request_seconds",
        "throttle_seconds",
        "throttled",
        "used_at",
    )

    def __init__(self, principal: Principal, client_id: str, now: float) -> None:
        self.principal = principal
        self.client_id = client_id
        self.used_at = now
        self.epoch = -1  # of the quotas that the buckets are of; another: look them up again
        self.produce: TokenBucket | None = None
        self.fetch: TokenBucket | None = None
        self.request: TokenBucket | None = None
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.request_seconds = 0.0
        self.throttled = 0
        self.throttle_seconds = 0.0

    def produced(self, size: int, now: float) -> float:
        """Returns for how many seconds the client must wait."""
        self.used_at = now
        self.produced_bytes += size
        return 0.0 if self.produce is None else self.produce.take(size, now)

    def fetched(self, size: int, now: float) -> float:
        self.used_at = now
        self.fetched_bytes += size
        return 0.0 if self.fetch is None else self.fetch.take(size, now)

    def worked(self, seconds: float, now: float) -> None:
        """What the event loop worked for this client. If that was too much, the next answer tells."""
        self.used_at = now
        self.request_seconds += seconds
        if self.request is not None:
            self.request.take(seconds, now)

    @property
    def usage(self) -> Usage:
        return Usage(
            self.principal.name,
            self.client_id,
            self.produced_bytes,
            self.fetched_bytes,
            self.request_seconds,
            self.throttled,
            self.throttle_seconds,
        )
