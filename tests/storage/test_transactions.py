"""Transactions against a simple model: the last stable offset and the aborted ones, also after restarts."""

from __future__ import annotations

import shutil

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.protocol.records import EndTransaction, build_end_transaction
from tidemark.storage import Log, LogConfig

T0 = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2000, producer_id_expiration_ms=1 << 60)
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "abort", "roll", "restart", "kill"]), st.integers(1, 4)),
    max_size=60,
)


class Model:
    def __init__(self) -> None:
        self.end = 0
        self.opened: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer, first offset, marker's offset
        self.sequences: dict[int, int] = {}

    def stable(self) -> int:
        return min([self.end, *self.opened.values()])

    def aborted_in(self, first: int, end: int) -> list[tuple[int, int, int]]:
        return [entry for entry in self.aborted if entry[2] >= first and entry[1] < end]


def open_at(path: str, *, clean: bool) -> Log:
    return Log.open(path, config=CONFIG, clean=clean, now_ms=lambda: T0)


def take(log: Log, model: Model, step: str, producer: int, make_batch, append) -> Log:
    if step == "write":
        sequence = model.sequences.get(producer, 0)
        append(log, make_batch(2, size=100, producer_id=producer, sequence=sequence, transactional=True))
        model.sequences[producer] = sequence + 2
        model.opened.setdefault(producer, model.end)
        model.end += 2
    elif step in ("commit", "abort"):
        marker = EndTransaction(producer, 0, commit=step == "commit", coordinator_epoch=1)
        append(log, build_end_transaction(marker, timestamp=T0))
        first = model.opened.pop(producer, None)
        if step == "abort" and first is not None:
            model.aborted.append((producer, first, model.end))
        model.end += 1
    elif step == "roll":
        log.roll()
    else:
        log.close(clean=step == "restart")
        log = open_at(log.directory, clean=step == "restart")
    return log


@given(steps=STEPS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_log_knows_what_is_stable_and_what_was_aborted(tmp_path_factory, make_batch, append, steps):
    root = tmp_path_factory.mktemp("transactions")
    log, model = open_at(str(root / "t-0"), clean=True), Model()
    for step, producer in steps:
        log = take(log, model, step, producer, make_batch, append)
        assert log.end_offset == model.end
        assert log.last_stable_offset(model.end) == model.stable()
        for first in range(0, model.end + 1, 3):
            for end in (first + 1, first + 7, model.end):
                found = log.aborted_transactions(from_offset=first, up_to=end)
                assert [entry[:3] for entry in found] == model.aborted_in(first, end)
    log.close(clean=False)
    shutil.rmtree(root)
