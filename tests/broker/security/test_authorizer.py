from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.config import ConfigError, load_config
from tidemark.broker.config.broker_settings import STANDARD_AUTHORIZER
from tidemark.broker.core.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from tidemark.broker.core.principal import Principal
from tidemark.broker.metadata.image import Image, acl_record
from tidemark.broker.security import authorizer as authorizer_module
from tidemark.broker.security.authorizer import Authorizer

ANN = Principal("User", "ann")
HOST = "10.0.0.7"
READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
ALLOW = Acl(TOPIC, "t", PatternType.LITERAL, "User:ann", "*", READ, Permission.ALLOW)


def authorizer(**settings: Any) -> Authorizer:
    overrides = {"authorizer.class.name": STANDARD_AUTHORIZER, **settings}
    return Authorizer(load_config(overrides=overrides))


def test_rights_are_kept_until_the_entries_change() -> None:
    asked, empty = authorizer(), Image()
    asked.follow(empty, empty)
    before = asked.rights(ANN, HOST)
    assert not before.may(READ, TOPIC, "t")
    asked.follow(empty, empty)
    assert asked.rights(ANN, HOST) is before
    asked.follow(empty, empty.apply([acl_record(ALLOW)]))
    assert asked.rights(ANN, HOST).may(READ, TOPIC, "t")
    assert not asked.rights(Principal("User", "bob"), HOST).may(READ, TOPIC, "t")
    assert not asked.rights(Principal("Group", "ann"), HOST).may(READ, TOPIC, "t")


def test_super_users_are_separated_by_semicolons() -> None:
    asked = authorizer(**{"super.users": "User:CN=a,O=b; User:ann;"})
    for name, is_super in (("CN=a,O=b", True), ("ann", True), ("CN=a", False)):
        assert asked.rights(Principal("User", name), HOST).may(READ, TOPIC, "t") == is_super


@pytest.mark.parametrize("users", ["ann", "User:", ":ann", "User:a;b"])
def test_a_super_user_that_is_no_principal_is_refused(users: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users"):
        authorizer(**{"super.users": users})


def test_another_authorizer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        authorizer(**{"authorizer.class.name": "com.example.Mine"})


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "DECISIONS_MAX", 100)
    asked = authorizer()
    for number in range(1000):
        asked.rights(ANN, f"10.0.{number // 250}.{number % 250}").may(READ, TOPIC, f"t{number}")
        assert sum(len(each._decisions) for each in asked._rights.values()) <= 102
    rights = asked.rights(ANN, HOST)
    for number in range(20_000):
        assert not rights.may(READ, TOPIC, f"t{number}")
    assert len(rights._decisions) <= 10_000
    before = len(rights._decisions)
    assert not rights.may(READ, TOPIC, "x" * 30_000)
    assert len(rights._decisions) == before
