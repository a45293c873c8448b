"""A topic that exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    id: UUID


TopicMaker = Callable[..., Topic]
