"""The members: voters, whose majority decides, and learners, which only follow.

A configuration is a value. It changes by entries in the log, one member at a time, so that a majority of the old one
and a majority of the new one always share a node.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidemark.raft.errors import MessageCorrupt, UnknownMember, UnknownVersion

MEMBERS_MAX: Final = 1024
DETAIL_BYTES_MAX: Final = 1 << 16

NO_DIRECTORY: Final = bytes(16)  # the directory id of a member that has none

# Version 0 begins with the count, whose first byte is small; since version 1 the version comes first, marked by the
# high bit. A configuration without directory ids is written as version 0, which every Tidemark reads.
_VERSION: Final = 1
_VERSION_MARK: Final = 0x80
_COUNT = struct.Struct(">H")
_MEMBER = struct.Struct(">IBI")  # id, is it a voter, length of its detail; since version 1 the directory id follows


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """`detail` is the application's: how to reach the node. `directory_id` names the disk that the member's log and
    vote are on (KIP-853): a node that comes back with another one has forgotten what it promised."""

    node_id: int
    is_voter: bool = True
    detail: bytes = b""
    directory_id: bytes = NO_DIRECTORY

    def __post_init__(self) -> None:
        if len(self.directory_id) != len(NO_DIRECTORY):
            raise ValueError(f"a directory id is {len(NO_DIRECTORY)} bytes, not {len(self.directory_id)}")


@dataclass(frozen=True, slots=True)
class Configuration:
    members: tuple[Member, ...] = ()
    voters: tuple[int, ...] = field(init=False, compare=False)
    learners: tuple[int, ...] = field(init=False, compare=False)
    majority: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        ids = [member.node_id for member in self.members]
        if ids != sorted(set(ids)) or len(ids) > MEMBERS_MAX:
            raise ValueError(f"members must be sorted, unique and at most {MEMBERS_MAX}: {ids}")
        voters = tuple(member.node_id for member in self.members if member.is_voter)
        object.__setattr__(self, "voters", voters)
        object.__setattr__(self, "learners", tuple(node_id for node_id in ids if node_id not in voters))
        object.__setattr__(self, "majority", len(voters) // 2 + 1)

    @classmethod
    def of(cls, voters: Iterable[int], *, learners: Iterable[int] = ()) -> Configuration:
        members = [Member(node_id=node_id) for node_id in voters]
        members += [Member(node_id=node_id, is_voter=False) for node_id in learners]
        return cls(tuple(sorted(members, key=lambda member: member.node_id)))

    def member(self, node_id: int) -> Member | None:
        return next((member for member in self.members if member.node_id == node_id), None)

    def with_member(self, member: Member) -> Configuration:
        others = [other for other in self.members if other.node_id != member.node_id]
        return Configuration(tuple(sorted([*others, member], key=lambda other: other.node_id)))

    def with_voter(self, node_id: int) -> Configuration:
        member = self.member(node_id)
        if member is None:
            raise UnknownMember(f"node {node_id} is not a learner")
        return self.with_member(replace(member, is_voter=True))

    def without(self, node_id: int) -> Configuration:
        if self.member(node_id) is None:
            raise UnknownMember(f"node {node_id} is not a member")
        return Configuration(tuple(member for member in self.members if member.node_id != node_id))

    def agreed(self, values: Sequence[int]) -> int:
        """The largest value that a majority of the voters has reached, given the value of each."""
        return sorted(values, reverse=True)[self.majority - 1] if values else 0

    def encode(self) -> bytes:
        is_plain = all(member.directory_id == NO_DIRECTORY for member in self.members)
        parts = [b"" if is_plain else bytes([_VERSION_MARK | _VERSION]), _COUNT.pack(len(self.members))]
        for member in self.members:
            parts.append(_MEMBER.pack(member.node_id, member.is_voter, len(member.detail)))
            parts += (b"" if is_plain else member.directory_id, member.detail)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Configuration:
        try:
            version, position = _version_of(data)
            (count,) = _COUNT.unpack_from(data, position)
            position, members = position + _COUNT.size, []
            for _ in range(count):
                member, position = _member_at(data, position, version=version)
                members.append(member)
            if position != len(data):
                raise MessageCorrupt(f"{len(data) - position} bytes follow the configuration")
            return cls(tuple(members))
        except MessageCorrupt:
            raise
        except (struct.error, ValueError) as error:
            raise MessageCorrupt(f"not a configuration: {error}") from error


def _version_of(data: bytes) -> tuple[int, int]:
    """The version of the format, and where the count is."""
    if not data or data[0] < _VERSION_MARK:
        return 0, 0
    version = data[0] - _VERSION_MARK
    if version > _VERSION:
        raise UnknownVersion("a configuration of the quorum", version=version, newest=_VERSION)
    return version, 1


def _member_at(data: bytes, position: int, *, version: int) -> tuple[Member, int]:
    node_id, is_voter, length = _MEMBER.unpack_from(data, position)
    start = position + _MEMBER.size
    directory_id = NO_DIRECTORY
    if version >= 1:
        directory_id, start = bytes(data[start : start + len(NO_DIRECTORY)]), start + len(NO_DIRECTORY)
    end = start + length
    if is_voter > 1 or length > DETAIL_BYTES_MAX or end > len(data):
        raise MessageCorrupt("a member does not fit its configuration")
    detail = bytes(data[start:end])
    return Member(node_id=node_id, is_voter=bool(is_voter), detail=detail, directory_id=directory_id), end


class ConfigurationHistory:
    """The configurations in the log by index: the newest is in force, and goes again if its entry is truncated."""

    def __init__(self, first: Configuration, *, index: int = 0) -> None:
        self._entries = [(index, first)]
        self.current = first
        self.index = index

    def add(self, configuration: Configuration, *, index: int) -> None:
        self._entries.append((index, configuration))
        self._renew()

    def truncate_from(self, index: int) -> None:
        while self._entries[-1][0] >= index and len(self._entries) > 1:
            self._entries.pop()
        self._renew()

    def at(self, index: int) -> Configuration:
        return next(configuration for at, configuration in reversed(self._entries) if at <= index)

    def was_voter_since(self, node_id: int, *, index: int) -> bool:
        """Whether it has a vote in the configuration at `index` or in one after it."""
        first = max(position for position, (at, _) in enumerate(self._entries) if at <= index)
        return any(node_id in configuration.voters for _, configuration in self._entries[first:])

    def knows(self, node_id: int) -> bool:
        """Whether it is, or lately was, a member."""
        return any(configuration.member(node_id) is not None for _, configuration in self._entries)

    def compact_to(self, index: int) -> None:
        while len(self._entries) > 1 and self._entries[1][0] <= index:
            self._entries.pop(0)

    def _renew(self) -> None:
        self.index, self.current = self._entries[-1]
