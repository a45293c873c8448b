"""Which quota counts for a client: the most specific one, in Kafka's order; and who shares it.

A pair of user and client id comes before a user, and a user before a client id; a name before a default. A quota of a
user is shared by all of the user's clients, one of a client id by all users that use it; one of a pair is the pair's
own. A default is no common pot: everybody that it counts for has as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.broker.metadata.client_quotas import CLIENT_ID, IP, USER, ClientQuotas, Entity

NAMED: Final = "named"
DEFAULT: Final = "default"
ABSENT: Final = "absent"
# (of the user, of the client id): what an entity must have, in the order of precedence.
ORDER: Final = (
    (NAMED, NAMED),
    (NAMED, DEFAULT),
    (NAMED, ABSENT),
    (DEFAULT, NAMED),
    (DEFAULT, DEFAULT),
    (DEFAULT, ABSENT),
    (ABSENT, NAMED),
    (ABSENT, DEFAULT),
)


class Share(NamedTuple):
    """Who shares a quota: one of them may be None, which is everybody."""

    user: str | None
    client_id: str | None


class Found(NamedTuple):
    bound: float
    share: Share


def quota_of(quotas: ClientQuotas, key: str, *, user: str, client_id: str) -> Found | None:
    """None: there is no limit."""
    for of_user, of_client in ORDER:
        values = quotas.get(_entity(user, of_user, client_id, of_client))
        if values is not None and key in values:
            share = Share(None if of_user is ABSENT else user, None if of_client is ABSENT else client_id)
            return Found(values[key], share)
    return None


def quota_of_address(quotas: ClientQuotas, key: str, address: str) -> float | None:
    for name in (address, None):
        values: Mapping[str, float] = quotas.get(((IP, name),), {})
        if key in values:
            return values[key]
    return None


def _entity(user: str, of_user: str, client_id: str, of_client: str) -> Entity:
    parts: list[tuple[str, str | None]] = []
    if of_client is not ABSENT:
        parts.append((CLIENT_ID, client_id if of_client is NAMED else None))
    if of_user is not ABSENT:
        parts.append((USER, user if of_user is NAMED else None))
    return tuple(parts)
