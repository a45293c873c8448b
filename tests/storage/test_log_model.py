"""A log against a list: random operations, crashes, power cuts. Nothing flushed may be missing, changed or doubled."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.storage import Log, LogConfig

T0 = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=9000,
    index_interval_bytes=700,
    retention_ms=-1,
    file_delete_delay_ms=0,
    producer_id_expiration_ms=1 << 60,
)

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.integers(1, 900), st.sampled_from([-1, 1, 2])),
        st.tuples(st.just("append"), st.integers(1, 3), st.integers(1, 300), st.sampled_from([-1, 1, 2])),
        st.tuples(st.just("replicate"), st.integers(1, 6), st.integers(0, 40)),
        st.tuples(st.sampled_from(["flush", "roll", "reopen", "kill", "power cut", "begin flush", "finish flush"])),
        st.tuples(st.sampled_from(["truncate", "delete before"]), st.floats(0, 1)),
        st.tuples(st.just("retain"), st.integers(0, 30_000)),
    ),
    max_size=40,
)


@dataclass
class Model:
    """What must be in the log: batches in order, where it starts, and how far it was reported flushed."""

    batches: list[tuple[int, int, bytes, int, int]] = field(default_factory=list)  # first, last, bytes, producer, seq
    start: int = 0
    end: int = 0
    flushed: int = 0

    def expected(self) -> list[bytes]:
        return [batch[2] for batch in self.batches if batch[1] >= self.start]


class Run:
    def __init__(self, root: Path, make_disk, make_batch, append, read_batches, seed: int) -> None:
        self.random = Random(seed)
        self.root, self.number = root, 0
        self.make_disk, self.make_batch, self.append_to, self.read = make_disk, make_batch, append, read_batches
        self.model = Model()
        self.sequences: dict[int, int] = {}
        self.pending = None
        self.disk = self.fresh_disk()
        self.log = self.open(clean=True, recovery_point=0)

    def fresh_disk(self):
        self.number += 1
        folder = self.root / str(self.number)
        folder.mkdir()
        return self.make_disk(folder)

    def open(self, *, clean: bool, recovery_point: int) -> Log:
        return Log.open(
            f"{self.disk.root}/t-0",
            config=CONFIG,
            files=self.disk,
            now_ms=lambda: T0,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=self.model.start,
        )

    def do(self, operation: tuple[Any, ...]) -> None:
        name, *arguments = operation
        getattr(self, name.replace(" ", "_"))(*arguments)
        self.check()

    def append(self, count: int, size: int, producer: int) -> None:
        sequence = self.sequences.get(producer, 0) if producer > 0 else -1
        batch = self.make_batch(count, size=size // count + 1, producer_id=producer, sequence=sequence)
        done = self.append_to(self.log, batch, leader_epoch=self.number)
        assert (done.base_offset, done.duplicate) == (self.model.end, False)
        if producer > 0:
            self.sequences[producer] = sequence + count
        self.model.batches.append((done.base_offset, done.last_offset, bytes(batch), producer, sequence))
        self.model.end = done.last_offset + 1

    def replicate(self, batches: int, gap: int) -> None:
        data, offset = bytearray(), self.model.end + gap
        for _ in range(batches):
            batch = self.make_batch(2, size=150, base_offset=offset, leader_epoch=self.number)
            self.model.batches.append((offset, offset + 1, bytes(batch), -1, -1))
            data += batch
            offset += 2
        self.model.end = self.log.append_replicated(data)
        assert self.model.end == offset

    def flush(self) -> None:
        self.log.flush()
        self.model.flushed = self.model.end

    def begin_flush(self) -> None:
        self.pending = self.log.begin_flush(), self.model.end  # type: ignore[assignment]
        self.pending[0]()  # type: ignore[index]

    def finish_flush(self) -> None:
        if self.pending is not None:
            flush, end = self.pending
            self.pending = None
            self.log.finish_flush(flush)
            self.model.flushed = self.log.recovery_point
            assert self.log.recovery_point <= end or self.log.recovery_point <= self.model.flushed

    def roll(self) -> None:
        self.log.roll()

    def truncate(self, part: float) -> None:
        model = self.model
        offset = model.start + int(part * (model.end - model.start))
        self.log.truncate_to(offset)
        kept = [batch for batch in model.batches if batch[1] < offset]
        straddling = [batch for batch in model.batches if batch[0] < offset <= batch[1]]
        model.batches = kept
        model.end = min([offset, *(batch[0] for batch in straddling)]) if offset < model.end else model.end
        model.start, model.flushed = min(model.start, model.end), min(model.flushed, model.end)
        self.rewind_sequences()

    def rewind_sequences(self) -> None:
        """After records are gone, producers go on from what the log remembers of them."""
        self.sequences = {state.producer_id: state.next_sequence for state in self.log.producers() if state.batches}

    def delete_before(self, part: float) -> None:
        offset = self.model.start + int(part * (self.model.end - self.model.start))
        self.log.delete_before(offset)
        self.model.start = offset
        self.log.remove_deleted(T0)

    def retain(self, limit: int) -> None:
        config = LogConfig(segment_bytes=9000, index_interval_bytes=700, retention_ms=-1, file_delete_delay_ms=0)
        self.log.config = replace(config, retention_bytes=-1)
        self.log.apply_retention(T0)  # what lies before the log's start goes, however little is left
        self.log.config = replace(config, retention_bytes=limit)
        before = self.log.size_bytes
        if self.log.apply_retention(T0):
            assert self.log.size_bytes >= min(before, limit)
        self.log.config = CONFIG
        self.log.remove_deleted(T0)
        self.model.start = self.log.start_offset

    def reopen(self) -> None:
        self.pending = None
        self.log.close()
        self.model.flushed = self.model.end
        self.log = self.open(clean=True, recovery_point=0)
        self.settle()
        assert self.log.recovery_point == self.model.end

    def kill(self) -> None:
        """The process dies; the kernel keeps what was written."""
        self.pending = None
        point = self.random.choice([0, self.log.recovery_point])
        self.log.close(clean=False)
        self.log = self.open(clean=False, recovery_point=point)
        self.settle()

    def settle(self) -> None:
        """A log truncated into a gap ends, once it is opened again, where its last batch ends. No record is lost."""
        model, end = self.model, self.log.end_offset
        assert max([model.start, *(batch[1] + 1 for batch in model.batches)]) <= end <= model.end
        model.end, model.flushed = end, min(model.flushed, end)

    def power_cut(self) -> None:
        self.pending = None
        point = self.random.choice([0, self.log.recovery_point])
        self.log.close(clean=False)
        old, self.disk = self.disk, self.fresh_disk()
        old.power_cut(self.random, Path(self.disk.root))
        self.disk.adopt()
        self.log = self.open(clean=False, recovery_point=point)
        end = self.log.end_offset
        assert max([0, *(batch[1] + 1 for batch in self.model.batches if batch[1] < self.model.flushed)]) <= end
        assert end <= self.model.end
        self.model.batches = [batch for batch in self.model.batches if batch[1] < end]
        self.model.end = end
        self.log.flush()
        self.model.flushed = end
        self.rewind_sequences()

    def check(self) -> None:
        model, log = self.model, self.log
        assert (log.start_offset, log.end_offset) == (model.start, model.end)
        assert [
            data for _, data in self.read(log, limit_bytes=self.random.choice([1, 3000, 1 << 20]))
        ] == model.expected()
        states = {state.producer_id: state for state in log.producers()}
        for first, last, _, producer, sequence in {batch[3]: batch for batch in model.batches if batch[3] > 0}.values():
            if last >= model.start:
                remembered = states[producer].batches[-1]
                assert (remembered.first_offset, remembered.last_offset) == (first, last)
                assert remembered.first_sequence == sequence


@given(operations=OPERATIONS, seed=st.integers(0, 1 << 32))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_whatever_happens_flushed_records_are_there_in_order_once(
    tmp_path_factory, faulty_files, make_batch, append, read_batches, operations, seed
):
    root = tmp_path_factory.mktemp("model")
    try:
        run = Run(root, faulty_files, make_batch, append, read_batches, seed)
        for operation in operations:
            run.do(operation)
        run.log.close(clean=False)
    finally:
        shutil.rmtree(root)
