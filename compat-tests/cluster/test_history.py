"""The checker finds what it is there to find: each anomaly, planted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster.history import UNKNOWN, History, Place, Value, check

Final = dict[int, list[tuple[int, Value]]]


def a_good_run() -> tuple[History, Final]:
    history = History()
    final: Final = {0: [], 1: []}
    for number in range(10):
        value, place = Value(7, number), Place(number % 2, number // 2)
        history.sent[value] = place.partition
        history.acknowledged.append((value, place, float(number)))
        history.reads[0].append((place, value))
        final[place.partition].append((place.offset, value))
    return history, final


def lose(_history: History, final: Final) -> None:
    final[1].pop()


def double(_history: History, final: Final) -> None:
    final[0].append((5, final[0][4][1]))


def swap(history: History, final: Final) -> None:
    (first, a), (second, b) = final[0][0], final[0][1]
    final[0][:2] = [(first, b), (second, a)]
    history.reads.clear()


def rewrite(history: History, final: Final) -> None:
    final[0][2] = (2, Value(7, 99))
    history.sent[Value(7, 99)] = 0


def acknowledge_twice(history: History, _final: Final) -> None:
    value = Value(7, 98)
    history.sent[value] = 0
    history.acknowledged.append((value, Place(0, 2), 99.0))


def skip(history: History, _final: Final) -> None:
    del history.reads[0][4]


def invent(_history: History, final: Final) -> None:
    final[0].append((5, Value(6, 6)))


def test_a_good_run_has_no_anomalies() -> None:
    report = check(*a_good_run())
    assert report.is_clean, report
    assert report.longest_gap == 2.0
    assert report.longest_silence == 1.0


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, "lost"),
        (double, "duplicates"),
        (swap, "out of order"),
        (rewrite, "rewritten"),
        (acknowledge_twice, "offsets that disagree"),
        (skip, "skipped"),
        (invent, "never sent"),
    ],
)
def test_each_anomaly_is_found(plant: Callable[[History, Final], None], kind: str) -> None:
    history, final = a_good_run()
    plant(history, final)
    report = check(history, final)
    assert report.anomalies[kind], report
    assert kind in str(report)


def test_what_failed_may_be_there_or_not() -> None:
    history, final = a_good_run()
    for number, value in ((20, Value(7, 20)), (21, Value(7, 21))):
        history.sent[value] = 0
        history.failed[value] = "timed out"
        if number == 20:
            final[0].append((5, value))
    assert check(history, final).is_clean


def test_a_record_may_be_acknowledged_without_its_offset_but_must_be_there() -> None:
    history, final = a_good_run()
    for number in (20, 21):
        history.sent[Value(7, number)] = 0
        history.acknowledged.append((Value(7, number), Place(0, UNKNOWN), 30.0))
    final[0].append((5, Value(7, 20)))
    report = check(history, final)
    assert [kind for kind, found in report.anomalies.items() if found] == ["lost"]
    assert len(report.anomalies["lost"]) == 1
