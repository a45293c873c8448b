"""The access control entries of an image, found by principal and by resource. Immutable: a change makes another index,
which shares with this one what has not changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemark.broker.core.acl import ANYTHING, Acl, PatternType, ResourceType

Pattern = tuple[ResourceType, PatternType, str]
NOTHING: Final[Mapping[Acl, None]] = {}


@dataclass(frozen=True, slots=True)
class AclIndex:
    by_principal: Mapping[str, Mapping[Acl, None]] = field(default_factory=dict)
    by_pattern: Mapping[Pattern, int] = field(default_factory=dict)  # how many entries have it
    count: int = 0

    def __iter__(self) -> Iterator[Acl]:
        for acls in self.by_principal.values():
            yield from acls

    def __contains__(self, acl: Acl) -> bool:
        return acl in self.by_principal.get(acl.principal, NOTHING)

    def has_any_for(self, resource_type: ResourceType, name: str) -> bool:
        """Whether there is an entry for the resource at all, whomever it is about."""
        patterns = self.by_pattern
        return (
            (resource_type, PatternType.LITERAL, name) in patterns
            or (resource_type, PatternType.LITERAL, ANYTHING) in patterns
            or any((resource_type, PatternType.PREFIXED, name[:size]) in patterns for size in range(len(name) + 1))
        )

    def changed(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> AclIndex:
        """With these entries and without those; an entry that is there already, or is not there, changes nothing."""
        by_principal: dict[str, Mapping[Acl, None]] = dict(self.by_principal)
        patterns = dict(self.by_pattern)
        own: dict[str, dict[Acl, None]] = {}  # copies that may be changed

        def of(principal: str) -> dict[Acl, None]:
            if principal not in own:
                own[principal] = dict(by_principal.get(principal, NOTHING))
            return own[principal]

        for acl in removed:
            if of(acl.principal).pop(acl, 0) is None:
                _count(patterns, acl, -1)
        for acl in added:
            if acl not in of(acl.principal):
                own[acl.principal][acl] = None
                _count(patterns, acl, 1)
        for principal, acls in own.items():
            if acls:
                by_principal[principal] = acls
            else:
                by_principal.pop(principal, None)
        return AclIndex(by_principal, patterns, sum(map(len, by_principal.values())))


def _count(patterns: dict[Pattern, int], acl: Acl, change: int) -> None:
    key = (acl.resource_type, acl.pattern_type, acl.name)
    patterns[key] = patterns.get(key, 0) + change
    if not patterns[key]:
        del patterns[key]
