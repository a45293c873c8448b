from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.metadata import acls
from tidemark.broker.metadata.features import OUR_METADATA_VERSION
from tidemark.broker.metadata.records import FeatureLevelRecord
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import AclCreation, CreateAclsRequest

TOPIC, CLUSTER, LITERAL, ALL, ALLOW = 2, 4, 3, 2, 3


def entry(principal: str = "User:ann", **fields: Any) -> AclCreation:
    known: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": LITERAL,
        "host": "*",
        "operation": ALL,
        "permission_type": ALLOW,
    }
    return AclCreation(principal=principal, **known | fields)


async def test_without_an_authorizer_every_entry_is_refused(shared: Any, version: int) -> None:
    answer = await shared.ask(CreateAclsRequest(creations=[entry("User:a"), entry("User:b")]), version)
    assert [each.error_code for each in answer.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all("uthorizer" in each.error_message for each in answer.results)


async def test_nothing_is_refused_where_nothing_is_asked(shared: Any, version: int) -> None:
    assert (await shared.ask(CreateAclsRequest(), version)).results == []


async def test_entries_are_kept_once_and_survive_a_restart(guarded: Any) -> None:
    for _ in range(2):
        answer = await guarded.client.ask(CreateAclsRequest(creations=[entry(), entry("User:bob"), entry()]))
        assert [each.error_code for each in answer.results] == [0, 0, 0]
    kept = guarded.acls
    assert sorted(each.principal for each in kept) == ["User:ann", "User:bob"]
    await guarded.restart()
    assert guarded.acls == kept


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_type": CLUSTER},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"principal": "ann"},
        {"principal": "User:"},
        {"principal": ":ann"},
        {"host": ""},
        {"host": "10.0.0.0/33"},
        {"host": "home/8"},
        {"operation": 1},
        {"operation": 0},
        {"permission_type": 1},
        {"permission_type": 9},
        {"resource_name": "x" * 2000},
    ],
    ids=str,
)
async def test_what_is_no_entry_is_refused_alone(guarded: Any, wrong: dict[str, Any]) -> None:
    answer = await guarded.client.ask(CreateAclsRequest(creations=[entry(**wrong), entry()]))
    assert [each.error_code for each in answer.results] == [ErrorCode.INVALID_REQUEST, 0]
    assert answer.results[0].error_message
    assert len(guarded.acls) == 1


async def test_there_are_not_more_than_the_limit(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "ACLS_MAX", 2)
    answer = await guarded.client.ask(CreateAclsRequest(creations=[entry(f"User:{name}") for name in "abc"]))
    assert [each.error_code for each in answer.results] == [ErrorCode.POLICY_VIOLATION] * 3
    assert guarded.acls == []


async def test_a_cluster_that_is_at_an_older_level_has_none(guarded: Any) -> None:
    await guarded.node._store.change(lambda _image: [FeatureLevelRecord(name=OUR_METADATA_VERSION, level=2)])
    answer = await guarded.client.ask(CreateAclsRequest(creations=[entry()]))
    assert answer.results[0].error_code == ErrorCode.UNSUPPORTED_VERSION
