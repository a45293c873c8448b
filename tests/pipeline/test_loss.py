"""Records that are gone before we read them."""

from pipeline.loss import Lost, lost, sentence


def test_a_log_that_starts_after_our_position_has_lost_what_lies_between() -> None:
    found = lost({("t", 0): 10, ("t", 1): 5}, {("t", 0): (25, 40), ("t", 1): (0, 40)})
    assert found == [Lost(topic="t", partition=0, first=10, last=24)]
    assert sentence(found) == "Records are gone that were not read yet: t-0 offsets 10 to 24 (15 records)"


def test_a_position_inside_the_log_or_at_its_end_has_lost_nothing() -> None:
    assert lost({("t", 0): 10, ("t", 1): 40}, {("t", 0): (10, 40), ("t", 1): (40, 40)}) == []


def test_a_topic_made_anew_is_a_loss() -> None:
    assert lost({("t", 0): 10}, {("t", 0): (0, 3)}) == [Lost(topic="t", partition=0, first=3, last=9)]
