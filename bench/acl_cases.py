"""Small requests to a broker with a thousand access control entries, one of which, by a prefix, allows the loaders."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.brokers import Running
from bench.cases import Case, Round, Scale, small

ACLS: Final = 1000
TOPICS: Final = "bench-"  # whose names begin so
OTHERS_PREFIXES: Final = (
    "b",
    "be",
    "ben",
    "bench",
    TOPICS,
)  # of entries that are for others, and have to be passed over
# Whoever connects is User:ANONYMOUS; what no entry is about, the cluster above all, stays open.
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SECONDS_MAX: Final = 60


def entries() -> list[AclBinding]:
    own = _entry("User:ANONYMOUS", TOPICS, ResourcePatternType.PREFIXED)
    prefixed = [_entry(f"User:other-{name}", name, ResourcePatternType.PREFIXED) for name in OTHERS_PREFIXES]
    rest = ACLS - 1 - len(prefixed)
    kinds = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)
    return [own, *prefixed, *(_entry(f"User:app-{n % 50}", f"team-{n}", kinds[n % 2]) for n in range(rest))]


def _entry(principal: str, topic: str, pattern: ResourcePatternType) -> AclBinding:
    kind, allow = ResourceType.TOPIC, AclPermissionType.ALLOW
    return AclBinding(kind, topic, pattern, principal, "*", AclOperation.ALL, allow)


@contextmanager
def _small(broker: Running, scale: Scale) -> Iterator[Round]:
    admin = AdminClient({**broker.client, "log_level": 0})
    for future in admin.create_acls(entries()).values():
        future.result(SECONDS_MAX)
    try:
        with small(broker, scale, case="acl-small") as one_round:
            yield one_round
    finally:
        any_of = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
        for future in admin.delete_acls([AclBindingFilter(*any_of)]).values():
            future.result(SECONDS_MAX)


ACL_CASES: dict[str, Case] = {"acl-small": _small}
