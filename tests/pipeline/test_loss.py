"""Records that are gone before we read them."""

from tidemark.pipeline.loss import LossWatch, Lost, lost, sentence


def test_a_log_that_starts_after_our_position_has_lost_what_lies_between() -> None:
    found = lost({("t", 0): 10, ("t", 1): 5}, {("t", 0): (25, 40), ("t", 1): (0, 40)})
    assert found == [Lost(topic="t", partition=0, first=10, last=24)]
    assert sentence(found) == "Records are gone that were not read yet: t-0 offsets 10 to 24 (15 records)"


def test_a_position_inside_the_log_or_at_its_end_has_lost_nothing() -> None:
    assert lost({("t", 0): 10, ("t", 1): 40}, {("t", 0): (10, 40), ("t", 1): (40, 40)}) == []


def test_a_topic_made_anew_is_a_loss() -> None:
    assert lost({("t", 0): 10}, {("t", 0): (0, 3)}) == [Lost(topic="t", partition=0, first=3, last=9)]


def test_what_a_running_batch_went_past_is_found_once() -> None:
    watch = LossWatch()
    watch.see({("t", 0): (0, 40)}, at=1.0)
    watch.see({("t", 0): (25, 40)}, at=5.0)
    assert watch.passed({("t", 0): 10}, began=4.0) == []  # it may have read them before they went
    assert watch.passed({("t", 0): 10}, began=6.0) == [Lost(topic="t", partition=0, first=10, last=24)]
    assert watch.passed({("t", 0): 10}, began=6.5) == []  # another sink's batch
    watch.see({("t", 0): (30, 40)}, at=7.0)
    assert watch.passed({("t", 0): 20}, began=8.0) == [Lost(topic="t", partition=0, first=25, last=29)]


def test_what_was_told_at_the_start_is_not_told_again() -> None:
    watch = LossWatch()
    watch.report([Lost(topic="t", partition=0, first=10, last=24)])
    watch.see({("t", 0): (25, 40)}, at=1.0)
    assert watch.passed({("t", 0): 10}, began=2.0) == []
