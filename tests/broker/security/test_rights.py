from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.core.acl import CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from tidemark.broker.core.principal import Principal
from tidemark.broker.metadata.acl_index import AclIndex
from tidemark.broker.security.rights import IMPLIED_BY, Rights, host_matches

ANN = Principal("User", "ann")
HERE = "10.0.0.7"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = ResourceType.TOPIC


def acl(name: str, operation: AclOperation = READ, **fields: Any) -> Acl:
    known: dict[str, Any] = {
        "resource_type": TOPIC,
        "pattern_type": PatternType.LITERAL,
        "principal": "User:ann",
        "host": "*",
        "permission": Permission.ALLOW,
    }
    return Acl(name=name, operation=operation, **known | fields)


DENY: dict[str, Any] = {"permission": Permission.DENY}
PREFIX: dict[str, Any] = {"pattern_type": PatternType.PREFIXED}


def rights(*acls: Acl, host: str = HERE, is_super: bool = False, allows_without_acl: bool = False) -> Rights:
    index = AclIndex().changed(added=acls)
    return Rights(ANN, host, index, is_super=is_super, allows_without_acl=allows_without_acl)


def test_what_no_entry_allows_is_denied() -> None:
    assert not rights().may(READ, TOPIC, "t")
    assert not rights(acl("u"), acl("t", WRITE), acl("t", principal="User:bob")).may(READ, TOPIC, "t")
    assert not rights(acl("t", resource_type=ResourceType.GROUP)).may(READ, TOPIC, "t")


@pytest.mark.parametrize(
    "allow",
    [
        acl("t"),
        acl("*"),
        acl("t", AclOperation.ALL),
        acl("t", principal="User:*"),
        acl("t", host=HERE),
        acl("t", host="10.0.0.0/8"),
        acl("t", **PREFIX),
        acl("", **PREFIX),
    ],
    ids=str,
)
def test_an_entry_allows(allow: Acl) -> None:
    decision = rights(allow).decide(READ, TOPIC, "t")
    assert (decision.is_allowed, decision.rule) == (True, allow)


@pytest.mark.parametrize(
    "deny",
    [
        acl("t", **DENY),
        acl("*", **DENY),
        acl("t", AclOperation.ALL, **DENY),
        acl("t", principal="User:*", **DENY),
        acl("t", host=HERE, **DENY),
        acl("t", **PREFIX | DENY),
    ],
    ids=str,
)
def test_a_denial_wins(deny: Acl) -> None:
    for order in ((acl("t"), deny), (deny, acl("t"))):
        decision = rights(*order).decide(READ, TOPIC, "t")
        assert (decision.is_allowed, decision.rule) == (False, deny)
    assert rights(acl("t"), deny, is_super=True).may(READ, TOPIC, "t")


def test_a_prefix_is_no_infix_and_a_star_no_prefix() -> None:
    assert not rights(acl("b", **PREFIX)).may(READ, TOPIC, "ab")
    assert not rights(acl("ab", **PREFIX)).may(READ, TOPIC, "a")
    assert not rights(acl("*", **PREFIX)).may(READ, TOPIC, "t")
    assert not rights(acl("t*")).may(READ, TOPIC, "tt")


def test_who_may_read_write_delete_or_alter_may_describe() -> None:
    for operation in AclOperation:
        implied = operation in IMPLIED_BY[DESCRIBE] | {DESCRIBE, AclOperation.ALL}
        assert rights(acl("t", operation)).may(DESCRIBE, TOPIC, "t") == implied
    assert rights(acl("t", AclOperation.ALTER_CONFIGS)).may(AclOperation.DESCRIBE_CONFIGS, TOPIC, "t")


def test_a_denial_implies_nothing() -> None:
    assert rights(acl("t", DESCRIBE), acl("t", READ, **DENY)).may(DESCRIBE, TOPIC, "t")
    assert rights(acl("t", READ), acl("t", DESCRIBE, **DENY)).may(READ, TOPIC, "t")


def test_everybody_is_allowed_only_what_no_entry_is_about() -> None:
    def may(*acls: Acl) -> bool:
        return rights(*acls, allows_without_acl=True).may(READ, TOPIC, "t")

    assert may()
    assert may(acl("u"), acl("u", **PREFIX), acl("t", resource_type=ResourceType.GROUP))
    for about in (acl("t", WRITE), acl("*", principal="User:bob"), acl("t", host="10.0.0.8"), acl("", WRITE, **PREFIX)):
        assert not may(about)
    assert may(acl("t", WRITE), acl("t"))


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("*", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.70", False),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.1.2.3/24", "10.1.2.200", True),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.7", "::ffff:10.0.0.7", True),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("2001:db8::/32", "10.0.0.1", False),
        ("10.0.0.0/33", "10.0.0.1", False),
        ("10.0.0.0/8", "?", False),
        ("10.0.0.0/8", "fe80::1%eth0", False),
    ],
)
def test_hosts(pattern: str, host: str, matches: bool) -> None:
    assert host_matches(pattern, host) == matches


def test_whether_a_client_may_do_something_somewhere() -> None:
    def somewhere(*acls: Acl) -> bool:
        return rights(*acls).may_somewhere(READ, TOPIC)

    assert not somewhere()
    assert not somewhere(acl("t", WRITE))
    for allow in (acl("t"), acl("*"), acl("t", **PREFIX), acl("t", AclOperation.ALL)):
        assert somewhere(allow)
        assert not somewhere(allow, acl("*", **DENY))
    assert not somewhere(acl("t"), acl("t", **DENY))
    assert not somewhere(acl("tt", **PREFIX), acl("t", **PREFIX | DENY))
    assert not somewhere(acl("tt"), acl("t", **PREFIX | DENY))
    assert somewhere(acl("t", **PREFIX), acl("tt", **PREFIX | DENY))
    assert somewhere(acl("t", **PREFIX), acl("t", **DENY))
    assert somewhere(acl("*"), acl("t", **PREFIX | DENY))
    assert rights(is_super=True).may_somewhere(READ, TOPIC)


NAMES = st.sampled_from(["*", "a", "ab", "abc", "b"])
ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:ann", "User:bob", "User:*"]),
    st.sampled_from(["*", HERE, "10.0.0.8", "10.0.0.0/29"]),
    st.sampled_from([READ, DESCRIBE, AclOperation.ALL, AclOperation.ALTER]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(st.lists(ACLS, max_size=8), NAMES, st.sampled_from([READ, DESCRIBE]), st.booleans())
def test_the_index_decides_as_a_walk_over_all_entries_does(
    acls: list[Acl], name: str, operation: AclOperation, everyone: bool
) -> None:
    def applies(each: Acl) -> bool:
        about = each.principal in ("User:ann", "User:*") and host_matches(each.host, HERE)
        return about and each.resource_type == TOPIC and each.covers(name)

    found = [each for each in acls if applies(each)]
    denied = any(e.permission == Permission.DENY and e.operation in (operation, AclOperation.ALL) for e in found)
    allows = {operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())}
    allowed = any(e.permission == Permission.ALLOW and e.operation in allows for e in found)
    unmentioned = not any(each.resource_type == TOPIC and each.covers(name) for each in acls)
    expected = not denied and (allowed or (everyone and unmentioned))
    asked = rights(*acls, allows_without_acl=everyone)
    assert asked.may(operation, TOPIC, name) == expected
    assert asked.may(operation, TOPIC, name) == expected  # what is remembered is what was decided


@given(st.lists(st.tuples(st.booleans(), ACLS), max_size=20))
def test_an_index_that_is_changed_step_by_step_is_one_that_is_made_at_once(steps: list[tuple[bool, Acl]]) -> None:
    index, kept = AclIndex(), dict[Acl, None]()
    for added, each in steps:
        before, were = index, list(index)
        if added:
            index = index.changed(added=[each])
            kept[each] = None
        else:
            index = index.changed(removed=[each])
            kept.pop(each, None)
        assert list(before) == were
    assert (set(index), index.count) == (set(kept), len(kept))
    assert index.by_pattern == AclIndex().changed(added=kept).by_pattern


def test_the_cluster_is_a_resource_like_others() -> None:
    allow = acl(CLUSTER_NAME, AclOperation.ALTER, resource_type=ResourceType.CLUSTER)
    assert rights(allow).may(DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
