"""Settings of many resources changed by one request and one commit, as AlterConfigs and its incremental sibling do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.repeats import Seen, repeated
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.configs import resource_label
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode


class Named(Protocol):
    name: str


class Resource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[Named]: ...


A = TypeVar("A")
R = TypeVar("R", bound=Resource)


async def alter_resources(
    resources: Sequence[R],
    store: MetadataStore,
    records: Callable[[Image, R], Sequence[Record]],
    *,
    validate_only: bool,
) -> list[Refused | None]:
    """Each resource is changed whole or not at all, and a refused one does not hold up the others: one outcome each."""
    outcomes: list[Refused | None] = []

    def decide(image: Image) -> Job[list[Record]]:
        outcomes.clear()
        committed = yield from decided(resources, lambda resource: records(image, resource), outcomes)
        return [] if validate_only else committed

    await store.change(decide)
    return outcomes


def decided(
    resources: Sequence[R], records: Callable[[R], Sequence[Record]], outcomes: list[Refused | None]
) -> Job[list[Record]]:
    """What all changes come to, and the outcome of each resource's."""
    found: list[Record] = []
    seen = Seen[tuple[int, str]]()
    for resource in resources:
        yield
        key = (resource.resource_type, resource.resource_name)
        try:
            if not seen.add(key):
                raise Refused(ErrorCode.INVALID_REQUEST, f"{resource_label(*key)} is in the request twice.")
            if repeated(config.name for config in resource.configs):
                raise Refused(ErrorCode.INVALID_REQUEST, "A setting is in the request twice.")
            found += records(resource)
            outcomes.append(None)
        except Refused as refusal:
            outcomes.append(refusal.with_traceback(None))  # very many of them would be much to free at once
    yield from seen.forget()
    return found


def answers(
    resources: Sequence[R], outcomes: list[Refused | None], answer: Callable[[R, Refused | None], A]
) -> Job[list[A]]:
    """An answer for each resource. What it is made of is let go of, one by one."""
    made = []
    for index, resource in enumerate(resources):
        made.append(answer(resource, outcomes[index]))
        outcomes[index] = None
        yield
    return made
