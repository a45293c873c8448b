"""How far a micro-batch goes: everything there is, at most so many offsets, or nothing until enough has gathered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.pipeline.source.client import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    at_most: int | None = None  # maxOffsetsPerTrigger
    at_least: int | None = None  # minOffsetsPerTrigger


def limited(
    position: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    limits: Limits,
    *,
    waited_long: bool,
) -> dict[TopicPartition, int]:
    """The end of the next micro-batch. A limit is shared out by how much each partition holds; each that has
    something gets at least one offset, so that none starves."""
    waiting = {key: max(0, latest[key] - position[key]) for key in latest}
    total = sum(waiting.values())
    if limits.at_least is not None and total < limits.at_least and not waited_long:
        return dict(position)
    if limits.at_most is None or total <= limits.at_most:
        return {key: max(latest[key], position[key]) for key in latest}
    return {
        key: position[key] + (max(1, limits.at_most * count // total) if count else 0) for key, count in waiting.items()
    }
