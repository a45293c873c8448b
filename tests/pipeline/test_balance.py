"""How a backlog is divided among tasks."""

from tidemark.pipeline.balance import ReadPlan, plan_reads


def test_even_partitions_are_left_alone() -> None:
    assert plan_reads({("t", p): 100_000 for p in range(4)}, cores=2) == ReadPlan()


def test_one_partition_with_nearly_everything_is_cut() -> None:
    plan = plan_reads({("t", 0): 1_000_000, ("t", 1): 10, ("t", 2): 0}, cores=2)
    assert plan.options() == {"minPartitions": "6", "maxRecordsPerPartition": "250003"}


def test_a_small_backlog_is_not_worth_cutting() -> None:
    assert plan_reads({("t", 0): 5_000, ("t", 1): 0}, cores=8) == ReadPlan()


def test_nothing_to_read_needs_no_plan() -> None:
    assert plan_reads({}, cores=2).options() == {}
