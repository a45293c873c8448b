"""How a backlog is divided among tasks: a partition that holds most of it must not be one task's work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TASKS_PER_CORE = 2
RECORDS_PER_TASK_MIN = 10_000  # below this, starting another task costs more than it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The connector's two options; None leaves one task per partition."""

    min_partitions: int | None = None
    records_per_partition_max: int | None = None

    def options(self) -> dict[str, str]:
        found = {"minPartitions": self.min_partitions, "maxRecordsPerPartition": self.records_per_partition_max}
        return {name: str(value) for name, value in found.items() if value is not None}


def plan_reads(backlog: Mapping[tuple[str, int], int], *, cores: int) -> ReadPlan:
    """From how many records each partition has for us. Even and wide enough: nothing to do."""
    total = sum(backlog.values())
    wanted_tasks = cores * TASKS_PER_CORE
    share = max(RECORDS_PER_TASK_MIN, -(-total // wanted_tasks))
    if not backlog or max(backlog.values()) <= 2 * share:
        return ReadPlan()
    pieces = sum(max(1, -(-records // share)) for records in backlog.values())
    return ReadPlan(min_partitions=pieces, records_per_partition_max=share)
