"""Batches requests to other brokers: while one is in flight, the next ones collect and are sent together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.peers import PeerUnavailable

log = logging.getLogger(__name__)

BATCH_MAX: Final = 1_000

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class RequestBatcher(Generic[Question, Answer]):
    def __init__(
        self,
        *,
        send: Callable[[int, Sequence[Question]], Awaitable[Sequence[Answer]]],
        failed: Callable[[Question], Answer],
    ) -> None:
        """`send(broker, questions)` returns the answers in order; `failed` makes an answer when that fails."""
        self._send = send
        self._failed = failed
        self._waiting: dict[int, deque[tuple[Question, Deferred[Answer]]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._in_flight: dict[int, asyncio.Task[Sequence[Answer]]] = {}

    def ask(self, broker: int, question: Question) -> Deferred[Answer]:
        deferred: Deferred[Answer] = Deferred()
        self._waiting.setdefault(broker, deque()).append((question, deferred))
        if broker not in self._tasks:
            self._tasks[broker] = asyncio.get_running_loop().create_task(self._run(broker))
        return deferred

    def give_up(self, broker: int) -> None:
        """The broker was fenced or has restarted: it will not answer what was sent to it, nor what waits behind."""
        waiting = self._waiting.get(broker) or deque()
        given_up = list(waiting)
        waiting.clear()
        if broker in self._in_flight:
            self._in_flight[broker].cancel()
        for question, deferred in given_up:
            deferred.resolve(self._failed(question))

    async def _run(self, broker: int) -> None:
        waiting = self._waiting[broker]
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), BATCH_MAX))]
                answers = await self._answers(broker, [question for question, _ in batch])
                for (_, deferred), answer in zip(batch, answers, strict=True):
                    deferred.resolve(answer)
        finally:
            del self._tasks[broker]

    async def _answers(self, broker: int, questions: Sequence[Question]) -> Sequence[Answer]:
        sending = self._in_flight[broker] = asyncio.ensure_future(self._send(broker, questions))
        try:
            await asyncio.wait((sending,))
            if sending.cancelled():
                raise PeerUnavailable("it was fenced, or restarted, while it was asked")
            answers = sending.result()
            if len(answers) == len(questions):
                return answers
            log.error("broker %d answered %d of %d questions", broker, len(answers), len(questions))
        except PeerUnavailable as error:
            log.info("broker %d does not answer about transactions: %s", broker, error)
        except Exception:
            log.exception("asking broker %d failed", broker)
        finally:
            del self._in_flight[broker]
            sending.cancel()
        return [self._failed(question) for question in questions]
