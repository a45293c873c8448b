"""Between dispatch and handlers: what the client may not touch never gets to a handler.

The table of rules (`rules/`) says what each API touches. A rule looks at the decoded request and lets it pass, answers
it with a refusal, or narrows it: then the handler gets the rest of the request, and the refusals are put into its
answer. An API that has no rule is for nodes only.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import GeneratorType
from typing import Any, Protocol, TypeVar

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.deferred import Answer, Deferred, awaited, mapped
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import NO_ANSWER, Call, Handler, QuickTopic, Route
from tidemark.broker.core.sliced_work import Job, at_once, finished
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.security.access import Access
from tidemark.broker.security.audit import Audit
from tidemark.broker.security.authorizer import Authorizer
from tidemark.broker.security.rule import Complete, Narrowed, rule_of
from tidemark.protocol.messages.fetch import FetchResponse

Quick = Callable[[bytearray, int, Call], Answer[Any]]

T = TypeVar("T")


class Client(Protocol):
    """Who asks, as far as it matters here."""

    principal: Principal
    host: str


class Guard:
    def __init__(self, authorizer: Authorizer, *, store: MetadataStore, settings: DynamicConfig, audit: Audit) -> None:
        self.authorizer = authorizer
        self._store = store
        self._settings = settings
        self._audit = audit

    def handler(self, route: Route, handle: Handler) -> Handler:
        """The handler for those requests, or parts of them, that are allowed."""
        rule = rule_of(route.name)
        if rule is None:
            return handle

        def guarded(request: Any, call: Call) -> Answer[Any]:
            if call.connection is None:  # a node's own request
                return handle(request, call)
            verdict = rule(request, self.access(route.name, route.response, call), call)
            if type(verdict) is GeneratorType:
                try:
                    next(verdict)
                except StopIteration as decided:
                    verdict = decided.value
                else:
                    return _decided_in_slices(verdict, handle, request, call)
            return _followed(verdict, handle, request, call)

        return guarded

    def access(self, api: str, response: type[Any], call: Call) -> Access:
        client = call.connection
        return Access(
            api,
            response,
            self.authorizer.rights(client.principal, client.host),
            image=self._store.image,
            config=self._settings.current,
            audit=self._audit,
        )

    def may_read(self, call: Call) -> Callable[[str | bytes], bool]:
        """Whether a client may read a topic, by name or id, at the time it is asked: a fetch session remembers topics,
        and a fetch may wait while rights change."""
        access, client = self.access("Fetch", FetchResponse, call), call.connection

        def may(topic: str | bytes) -> bool:
            access.rights = self.authorizer.rights(client.principal, client.host)
            name = topic if isinstance(topic, str) else self._store.image.topic_names.get(topic)
            return name is None or access.topic(AclOperation.READ, name)

        return may

    def may_describe(self, call: Call) -> Callable[[str], bool]:
        """Whether a client may know of a topic: one that it does not name is left out without a word."""
        rights = self.authorizer.rights(call.connection.principal, call.connection.host)
        return partial(rights.may, AclOperation.DESCRIBE, ResourceType.TOPIC)

    def lets_describe(self, client: Client, topic: str) -> bool:
        """As `may_describe`, of one topic, now."""
        return self.authorizer.rights(client.principal, client.host).may(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic
        )

    def lets_read(self, client: Client, topic: str) -> bool:
        return self.authorizer.rights(client.principal, client.host).may(AclOperation.READ, ResourceType.TOPIC, topic)

    def quick(self, quick: Quick, topic_of: QuickTopic) -> Quick:
        """The quick way of Produce, if the client may write: anything else is left to the handler, and its rule."""
        rights_of, store, write, kind = self.authorizer.rights, self._store, AclOperation.WRITE, ResourceType.TOPIC

        def guarded(frame: bytearray, position: int, call: Call) -> Answer[Any]:
            topic = topic_of(frame, position, call)
            name = store.image.topic_names.get(topic) if type(topic) is bytes else topic
            client = call.connection
            if name is None or not rights_of(client.principal, client.host).may(write, kind, name):  # type: ignore[arg-type]
                return None
            return quick(frame, position, call)

        return _never if self._audit.tells_allowed else guarded


def _never(_frame: bytearray, _position: int, _call: Call) -> None:
    """What is allowed is told to the audit log, by the rule."""


def _followed(verdict: Any, handle: Handler, request: Any, call: Call) -> Answer[Any]:
    if verdict is None:
        return handle(request, call)
    if type(verdict) is Narrowed:
        return _completed(handle(verdict.request, call), verdict.complete)
    return verdict


def _decided_in_slices(
    deciding: Generator[None, None, Any], handle: Handler, request: Any, call: Call
) -> Generator[None, None, Any]:
    """Of a request that names very many things, whose rights are looked up while others have their turn."""
    verdict = yield from deciding
    answer = _followed(verdict, handle, request, call)
    return (yield from answer) if type(answer) is GeneratorType else answer


def _completed(answer: Answer[Any], complete: Complete) -> Answer[Any]:
    if type(answer) is GeneratorType:
        return _completed_in_slices(answer, complete)
    if isinstance(answer, Deferred):
        return _completed_deferred(answer, complete)
    if inspect.isawaitable(answer):
        return _completed_later(answer, complete)
    return _complete_at_once(complete, answer)


def _completed_in_slices(answer: Generator[None, None, Any], complete: Complete) -> Job[Any]:
    response = yield from answer
    if isinstance(response, Deferred):
        return _completed_deferred(response, complete)
    if inspect.isawaitable(response):
        return _completed_later(response, complete)
    if response is not NO_ANSWER:
        yield from complete(response)
    return response


def _completed_deferred(answer: Deferred[Any], complete: Complete) -> Deferred[Any]:
    completed = mapped(answer, partial(_complete_at_once, complete))
    assert isinstance(completed, Deferred)
    completed.abandon = answer.abandon
    return completed


async def _completed_later(answer: Awaitable[Any], complete: Complete) -> object:
    response = await answer
    if isinstance(response, Deferred):
        response = await awaited(response)
    if response is not NO_ANSWER:
        await finished(complete(response))
    return response


def _complete_at_once(complete: Complete, response: T) -> T:
    if response is not NO_ANSWER:
        at_once(complete(response))
    return response
