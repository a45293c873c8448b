"""Whether a client may still have what it waits for: while a poll waits or a stream runs, tokens expire, users are
deleted, and rights are withdrawn."""

from __future__ import annotations

from typing import Final

from tidemark.broker.http.calls import HttpCaller
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode

CHECK_SECONDS: Final = 1.0


class Standing:
    def __init__(self, request: HttpRequest, caller: HttpCaller, leaders: Leaders) -> None:
        self._request = request
        self._caller = caller
        self._leaders = leaders
        self._checked_at = monotonic()
        self.holder = request.holder

    async def check(self, *topics: str) -> None:
        """Before records of these topics are given away. Raises Problem."""
        for topic in topics:
            if not self._leaders.may_read(self._caller, topic):
                raise Problem.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if monotonic() < self._checked_at + CHECK_SECONDS:
            return
        principal = await self._request.authenticate(self._request)
        if principal != self._caller.principal:
            raise Problem(401, "SASL_AUTHENTICATION_FAILED", "The credentials are another user's by now.")
        self._checked_at = monotonic()
