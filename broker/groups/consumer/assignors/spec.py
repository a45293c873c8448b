"""What an assignor knows about a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Assignment = Mapping[bytes, tuple[int, ...]]  # partitions in order by topic id; no topic without partitions


class MemberSpec(NamedTuple):
    instance_id: str | None
    topics: frozenset[bytes]  # ids of the topics it subscribes to, whether or not they exist
    previous: Assignment  # its part of the last target assignment
