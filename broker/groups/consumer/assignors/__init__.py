"""Server-side assignors: pure functions from subscriptions and the previous target to the new target assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tidemark.broker.groups.consumer.assignors.range import assign_range
from tidemark.broker.groups.consumer.assignors.spec import Assignment, MemberSpec
from tidemark.broker.groups.consumer.assignors.uniform import assign_uniform

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Assignment]]

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec"]
