"""Rules: what an API touches, and what a client hears that may not. Each is named as its API in one of `rules/`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import GeneratorType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tidemark.broker.cluster.refusals import refusal_of
from tidemark.broker.core.acl import AclOperation
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.security.access import Access, refusal
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.schema import ZERO_UUID

I = TypeVar("I")  # noqa: E741 -- an item of a request

Complete: TypeAlias = Callable[[Any], Job[None]]  # puts refusals into an answer, or takes out what is hidden
Verdict: TypeAlias = object
"""None: the request passes. `Narrowed`: a part of it does. A job: it has to look at many things, and returns one of
these. Anything else is the answer."""
Rule: TypeAlias = Callable[[Any, Access, Call], Verdict]


class Narrowed(NamedTuple):
    request: Any
    complete: Complete


ITEMS_PER_STEP: Final = 64  # between two looks at the clock
MODULES: Final = ("topics", "groups", "transactions", "configs", "cluster")
OPEN: Final = frozenset(
    (
        # Before a client is authenticated.
        "ApiVersions",
        # What clients tell about themselves; Kafka asks for no right, either.
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "SaslHandshake",
        "SaslAuthenticate",
        # A token is its owner's affair; for those of others the handlers ask the authorizer (KIP-373).
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
    )
)


def rule_of(api: str) -> Rule | None:
    """None: open to everybody."""
    if api in OPEN:
        return None
    for module in MODULES:
        rules: Mapping[str, Rule] = import_module(f"tidemark.broker.security.rules.{module}").RULES
        if api in rules:
            return rules[api]
    return whole(lambda access, _request: access.cluster(AclOperation.CLUSTER_ACTION), CLUSTER_FAILED)


CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def refused(request: Any, access: Access, code: ErrorCode) -> Job[Verdict]:
    return refusal_of(request, access.response, refusal(code))


def whole(may: Callable[[Access, Any], bool], code: ErrorCode) -> Rule:
    """All of the request, or nothing."""

    def rule(request: Any, access: Access, _call: Call) -> Verdict:
        return None if may(access, request) else refused(request, access, code)

    return rule


def for_cluster(operation: AclOperation) -> Rule:
    return whole(lambda access, _request: access.cluster(operation), CLUSTER_FAILED)


def topic_name(item: Any, access: Access) -> str | None:
    """The name of a topic that is asked for by name or id; None: there is none with this id, as the handler says."""
    topic_id = getattr(item, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return access.image.topic_names.get(topic_id)
    return item.name or None


def split(items: Iterable[I], may: Callable[[I], bool]) -> Job[tuple[list[I], list[I]]]:
    """Those that are allowed, and those that are denied. A client may name hundreds of thousands."""
    allowed: list[I] = []
    denied: list[I] = []
    for count, item in enumerate(items, 1):
        (allowed if may(item) else denied).append(item)
        if not count % ITEMS_PER_STEP:
            yield
    return allowed, denied


def refused_each(refuse: Callable[[I], Any], items: Iterable[I]) -> Job[list[Any]]:
    """The answers for items that are denied. `refuse` may be a job: one topic may have any number of partitions."""
    refusals = []
    for item in items:
        made = refuse(item)
        refusals.append((yield from made) if type(made) is GeneratorType else made)
        yield
    return refusals


def adding(answered: str, refusals: Iterable[Any]) -> Complete:
    """Put refusals into the list of an answer."""

    def complete(response: Any) -> Job[None]:
        getattr(response, answered).extend(refusals)
        return
        yield

    return complete


def each(
    may: Callable[[Access, Any], bool],
    refuse: Callable[[Any], Any],
    *,
    asked: str = "topics",
    answered: str = "topics",
) -> Rule:
    """Some of the items that a request lists, perhaps: `refuse` makes the answer of one that is denied."""

    def rule(request: Any, access: Access, _call: Call) -> Verdict:
        return narrow(request, access, lambda item: may(access, item), refuse, asked=asked, answered=answered)

    return rule


def narrow(
    request: Any,
    access: Access,
    may: Callable[[Any], bool],
    refuse: Callable[[Any], Any],
    *,
    asked: str = "topics",
    answered: str = "topics",
) -> Job[Verdict]:
    """An empty list may mean everything: if nothing is left, no handler is asked."""
    items = getattr(request, asked)
    allowed, denied = yield from split(items or (), may)
    if not denied:
        return None
    refusals = yield from refused_each(refuse, denied)
    if not allowed:
        return access.response(**{answered: refusals})
    setattr(request, asked, allowed)
    return Narrowed(request, adding(answered, refusals))
