"""AlterClientQuotas: set or take away quotas of users, clients and addresses (KIP-546).

Each entity is answered by itself: all of its changes happen, or none. An entity that is in a request twice is refused.
ValidateOnly checks everything and changes nothing. The controller decides; other brokers forward the request to it. The
quotas are in the metadata, and every node follows them from there.

v1: flexible (KIP-482)
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import find_repeated
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.client_quotas import Entity, alter_entity, apply_record, entity_of
from tidemark.broker.metadata.features import check_security_level
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntityData,
)


@handles(AlterClientQuotasRequest, AlterClientQuotasResponse, on_controller=True)
async def alter_client_quotas(
    request: AlterClientQuotasRequest, _call: Call, *, store: MetadataStore
) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()

    def decide(image: Image) -> Job[list[Record]]:
        twice = yield from find_repeated(map(_named, request.entries))
        records: list[Record] = []
        quotas = dict(image.client_quotas)  # with what is decided here already, so that limits hold
        for entry in request.entries:
            yield
            result = AlteredEntityData(entity=entry.entity)
            response.entries.append(result)
            try:
                if _named(entry) in twice:
                    raise Refused(ErrorCode.INVALID_REQUEST, "The entity is in the request twice.")
                check_security_level(image)
                changes = alter_entity(quotas, _entity(entry), _changes(entry))
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
                continue
            for change in changes:
                apply_record(quotas, change)
            records += changes
        return [] if request.validate_only else records

    await store.change(decide)
    return response


def _entity(entry: AlterationData) -> Entity:
    return entity_of((part.entity_type, part.entity_name) for part in entry.entity)


def _named(entry: AlterationData) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _changes(entry: AlterationData) -> list[tuple[str, float | None]]:
    return [(op.key, None if op.remove else op.value) for op in entry.ops]
