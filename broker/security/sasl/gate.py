"""What stands before a SASL listener's dispatcher: nothing passes it but ApiVersions and a login.

The state machine (`exchange`) decides; here its outcomes are done: answers sent, threads asked, connections ended, a
failed login's answer delayed. Once a client is in, its requests go straight to the dispatcher; only where logins end
(KIP-368) each is looked at first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.exchange import HANDSHAKE, Login, Outcome, SaslExchange
from tidemark.broker.security.sasl.login_log import LoginLog
from tidemark.broker.security.sasl.steps import AuthenticationFailed, Blocking

HANDSHAKE_KEY: Final = HANDSHAKE.key.to_bytes(2, "big")
REAUTHENTICATION_SECONDS_MIN: Final = 1.0  # as in Kafka: not more often than that

Handle = Callable[[Any, bytearray], None]


class GuardedConnection(Protocol):
    """What is needed of a connection here."""

    peer: str
    principal: Principal
    meter: Any
    login: Any

    @property
    def is_closed(self) -> bool: ...
    def handle_with(self, handle: Handle, *, request_bytes_max: int | None = None) -> None: ...
    def answer(self, parts: Any) -> None: ...
    def answer_deferred(self, deferred: Deferred[Any]) -> None: ...
    def begin_work(self) -> None: ...
    def end_work(self) -> None: ...
    def hang_up(self) -> None: ...


class _State:
    """Of one connection."""

    __slots__ = ("ends_at", "exchange", "login", "renewed_at")

    def __init__(self, exchange: SaslExchange) -> None:
        self.exchange = exchange
        self.login: Login | None = None
        self.ends_at = 0.0
        self.renewed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslGate:
    serve: Handle  # the dispatcher behind it
    new_exchange: Callable[[Login | None], SaslExchange]
    loop: asyncio.AbstractEventLoop
    executor: Executor
    log: LoginLog
    failure_delay_seconds: Callable[[], float]
    request_bytes_max: int  # after the login

    def __call__(self, connection: GuardedConnection, frame: bytearray) -> None:
        """A frame of a connection whose login is not over."""
        state: _State = connection.login or _State(self.new_exchange(None))
        connection.login = state
        outcome = state.exchange.receive(frame)
        if outcome.serve:
            self.serve(connection, frame)
        elif outcome.blocking is not None:
            self._ask_thread(connection, state, outcome.blocking)
        elif outcome.failure is not None:
            deferred: Deferred[Any] = Deferred()
            connection.answer_deferred(deferred)  # which is owed: what else has come is not looked at
            self._refuse(connection, outcome, deferred.resolve)
        else:
            self._finish(connection, state, outcome, connection.answer)

    def serve_session(self, connection: GuardedConnection, frame: bytearray) -> None:
        """A frame of a connection whose login ends."""
        state: _State = connection.login
        now = self.loop.time()
        if frame.startswith(HANDSHAKE_KEY) and self._may_renew(state, now):
            state.renewed_at = now
            state.exchange = self.new_exchange(state.login)
            connection.handle_with(self)
            self(connection, frame)
        elif now >= state.ends_at:
            assert state.login is not None
            self._log_refusal(connection, state.login.principal.name, state.login.mechanism, "its login has ended")
            connection.hang_up()
        else:
            self.serve(connection, frame)

    def _may_renew(self, state: _State, now: float) -> bool:
        return state.renewed_at is None or now >= state.renewed_at + REAUTHENTICATION_SECONDS_MIN

    # -- outcomes ----------------------------------------------------------

    def _ask_thread(self, connection: GuardedConnection, state: _State, blocking: Blocking) -> None:
        """Whatever takes long is done elsewhere; this connection waits for it, others do not."""
        deferred: Deferred[Any] = Deferred()
        connection.answer_deferred(deferred)
        connection.begin_work()

        def done(future: asyncio.Future[Any]) -> None:
            if future.cancelled() or connection.is_closed:
                return
            outcome = _outcome_of(state.exchange, future)
            self._finish(connection, state, outcome, deferred.resolve)
            if outcome.failure is None:
                connection.end_work()

        self.loop.run_in_executor(self.executor, blocking.run).add_done_callback(done)

    def _finish(
        self, connection: GuardedConnection, state: _State, outcome: Outcome, answer: Callable[[Any], None]
    ) -> None:
        if outcome.failure is not None:
            self._refuse(connection, outcome, answer)
            return
        if outcome.login is not None:
            self._let_in(connection, state, outcome.login)
        answer((outcome.reply,))

    def _let_in(self, connection: GuardedConnection, state: _State, login: Login) -> None:
        again = state.login is not None
        state.login = login
        connection.principal = login.principal
        connection.meter = None  # which is another user's from now on
        handle = self.serve
        if login.lifetime_ms is not None:
            state.ends_at = self.loop.time() + login.lifetime_ms / 1000
            handle = self.serve_session
        connection.handle_with(handle, request_bytes_max=self.request_bytes_max)
        self.log.accepted(principal=str(login.principal), mechanism=login.mechanism, peer=connection.peer, again=again)

    def _refuse(self, connection: GuardedConnection, outcome: Outcome, answer: Callable[[Any], None]) -> None:
        """The answer waits a little, so that guessing is slow; nothing more is read meanwhile."""
        assert outcome.failure is not None
        self._log_refusal(connection, outcome.failure.user, outcome.failure.mechanism, outcome.failure.reason)
        connection.begin_work()

        def tell() -> None:
            if not connection.is_closed:
                if outcome.reply is not None:
                    answer((outcome.reply,))
                connection.hang_up()

        self.loop.call_later(self.failure_delay_seconds(), tell)

    def _log_refusal(self, connection: GuardedConnection, user: str, mechanism: str, reason: str) -> None:
        self.log.refused(user=user, mechanism=mechanism, peer=connection.peer, reason=reason)


def _outcome_of(exchange: SaslExchange, future: asyncio.Future[Any]) -> Outcome:
    error = future.exception()
    if error is None:
        return exchange.resume(future.result())
    if isinstance(error, AuthenticationFailed):
        return exchange.refuse(error)
    return exchange.refuse(AuthenticationFailed(f"checking it failed here: {type(error).__name__}: {error}"))
