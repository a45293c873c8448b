"""Lag is counted to the end of the log, and told while nothing moves."""

from tidemark.failure import CommandFailed
from tidemark.pipeline.lag import LogEnds, records_behind


def test_lag_is_what_lies_between_position_and_end() -> None:
    assert records_behind({("t", 0): 7, ("t", 1): 20}, {("t", 0): 10, ("t", 1): 20, ("t", 2): 4}) == 3 + 0 + 4


def test_a_broker_that_is_away_leaves_the_last_ends_standing() -> None:
    now, away = [0.0], [False]

    def ask() -> dict[tuple[str, int], int]:
        if away[0]:
            raise CommandFailed("away")
        return {("t", 0): 10}

    ends = LogEnds(ask, clock=lambda: now[0])
    assert ends.now() == {("t", 0): 10}
    now[0], away[0] = 60.0, True
    assert ends.now() == {("t", 0): 10}


def test_the_cluster_is_not_asked_for_every_batch() -> None:
    now, asked = [0.0], []
    ends = LogEnds(lambda: asked.append(1) or {}, clock=lambda: now[0])  # type: ignore[func-returns-value]
    for tenth in range(40):
        now[0] = tenth / 10
        ends.now()
    assert len(asked) == 2
