"""What one client (a user with a client id) has used, and what it may use."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.broker.core.principal import Principal
from tidemark.broker.quotas.allowance import Allowance


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
    """`produced`, `fetched` and `time_used` return for how many seconds the client must wait; most often 0."""

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
        "requests",
        "throttle_seconds",
        "throttled",
    )

    def __init__(self, principal: Principal, client_id: str) -> None:
        self.principal = principal
        self.client_id = client_id
        self.epoch = -1  # of the quotas that the allowances are of; another: look them up again
        self.requests = 0  # since room was last made for other clients
        self.produce: Allowance | None = None
        self.fetch: Allowance | None = None
        self.request: Allowance | None = None
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.request_seconds = 0.0
        self.throttled = 0
        self.throttle_seconds = 0.0

    def produced(self, size: int) -> float:
        self.requests += 1
        self.produced_bytes += size
        return 0.0 if self.produce is None else self.produce.use(size)

    def fetched(self, size: int) -> float:
        self.requests += 1
        self.fetched_bytes += size
        return 0.0 if self.fetch is None else self.fetch.use(size)

    def worked(self, seconds: float) -> None:
        """What the event loop worked for this client. If that was too much, the next answer tells (`time_used`)."""
        self.request_seconds += seconds
        if self.request is not None:
            self.request.unsettled += seconds

    def time_used(self) -> float:
        self.requests += 1
        return 0.0 if self.request is None else self.request.use(0.0)

    def told_to_wait(self, seconds: float) -> None:
        self.throttled += 1
        self.throttle_seconds += seconds

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
