from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from tidemark.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

OK, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


def alteration(entity: dict[str, str | None], **changes: float | None) -> AlterationData:
    return AlterationData(
        entity=[EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )


async def alter(client: Any, *entries: AlterationData, validate_only: bool = False, version: int = 1) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = await client.ask(request, version)
    return [each.error_code for each in answer.entries]


async def quotas(client: Any, *components: ComponentData, strict: bool = False) -> dict[Any, dict[str, float]]:
    answer = await client.ask(DescribeClientQuotasRequest(components=list(components), strict=strict))
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


async def test_quotas_are_set_changed_and_removed(client: Any, version: int) -> None:
    pair = {"user": "ann", "client_id": None}
    assert (
        await alter(
            client,
            alteration({"user": "ann"}, producer_byte_rate=1000, request_percentage=12.5),
            alteration(pair, consumer_byte_rate=7),
            alteration({"ip": "10.0.0.1"}, connection_creation_rate=3),
            version=version,
        )
        == [OK] * 3
    )
    assert await quotas(client) == {
        (("user", "ann"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        (("client-id", None), ("user", "ann")): {"consumer_byte_rate": 7.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
    }
    assert (
        await alter(
            client,
            alteration({"user": "ann"}, producer_byte_rate=None, request_percentage=20, consumer_byte_rate=None),
            alteration(pair, consumer_byte_rate=None),
            version=version,
        )
        == [OK] * 2
    )
    assert await quotas(client) == {
        (("user", "ann"),): {"request_percentage": 20.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
    }


@pytest.mark.parametrize(
    "entry",
    [
        alteration({}, producer_byte_rate=1),
        alteration({"planet": "mars"}, producer_byte_rate=1),
        alteration({"user": ""}, producer_byte_rate=1),
        alteration({"user": "x" * 2000}, producer_byte_rate=1),
        alteration({"ip": "10.0.0.1", "user": "ann"}, connection_creation_rate=1),
        alteration({"ip": "not an address"}, connection_creation_rate=1),
        alteration({"ip": None}, producer_byte_rate=1),
        alteration({"user": "ann"}, connection_creation_rate=1),
        alteration({"user": "ann"}, no_such_quota=1),
        alteration({"user": "ann"}, producer_byte_rate=0),
        alteration({"user": "ann"}, producer_byte_rate=-5),
        alteration({"user": "ann"}, producer_byte_rate=1.5),
        alteration({"user": "ann"}, producer_byte_rate=1e30),
        alteration({"user": "ann"}, request_percentage=float("nan")),
        alteration({"user": "ann"}, controller_mutation_rate=float("inf")),
        alteration({"user": "ann"}, request_percentage=10, producer_byte_rate=-1),
        AlterationData(entity=[EntityData(entity_type="user", entity_name=each) for each in "ab"]),
        AlterationData(
            entity=[EntityData(entity_type="user", entity_name="ann")],
            ops=[OpData(key="request_percentage", value=each) for each in (1.0, 2.0)],
        ),
    ],
)
async def test_a_bad_entity_or_quota_is_refused_and_changes_nothing(client: Any, entry: AlterationData) -> None:
    good = alteration({"user": "bob"}, producer_byte_rate=1)
    assert await alter(client, entry, good) == [INVALID, OK]
    assert await quotas(client) == {(("user", "bob"),): {"producer_byte_rate": 1.0}}


async def test_an_entity_that_is_named_twice_is_refused(client: Any) -> None:
    entry = alteration({"user": "ann"}, producer_byte_rate=1)
    assert await alter(client, entry, alteration({"user": "ann"}, consumer_byte_rate=1)) == [INVALID, INVALID]
    assert await quotas(client) == {}


async def test_validate_only_changes_nothing(client: Any) -> None:
    good = alteration({"user": "ann"}, producer_byte_rate=1)
    bad = alteration({"user": "bob"}, producer_byte_rate=-1)
    assert await alter(client, good, bad, validate_only=True) == [OK, INVALID]
    assert await quotas(client) == {}


async def test_quotas_are_there_after_a_restart(start_node: Any, connect: Any, tmp_path: Any) -> None:
    node = await start_node(log_dirs=(str(tmp_path),))
    client = await connect(node)
    await alter(client, alteration({"user": None, "client_id": "app"}, producer_byte_rate=5))
    before = node._store.image
    assert before.apply(()).client_quotas == before.client_quotas
    assert type(before)().apply(before.records()).client_quotas == before.client_quotas, "a snapshot has them, too"
    await node.stop()
    client = await connect(await start_node(log_dirs=(str(tmp_path),)))
    assert await quotas(client) == {(("client-id", "app"), ("user", None)): {"producer_byte_rate": 5.0}}
