"""What the first pass remembers changes nothing but the work of the second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage import Log, LogConfig, job_for, measure
from tidemark.storage.cleaning.clean import clean
from tidemark.storage.cleaning.filtering import Filter
from tidemark.storage.cleaning.remembered_sizes import RememberedSizes

T0 = 1_700_000_000_000
SMALL_MAP = 3  # the seed whose map is full before the end
CONFIG = LogConfig(segment_bytes=400_000, index_interval_bytes=500, compact=True, delete=False)


def record(random: Random, keys: int) -> Record:
    size = random.choice([0, 3, 60, 70, 9_000, 40_000] if random.random() < 0.02 else [5, 50, 100])
    return Record(
        timestamp=T0 + random.choice([0, 40, -70, 9_000, 100_000_000]),
        key=b"key%d" % random.randrange(keys),
        value=None if random.random() < 0.05 else bytes(size),
        headers=[("h", b"x")] if random.random() < 0.1 else [],
    )


def cleaned(log: Log, path: Path, *, cleaned_up_to: int, memory_bytes: int) -> tuple[list[bytes], Any]:
    dirtiness = measure(log, cleaned_up_to=cleaned_up_to, high_watermark=log.end_offset, now_ms=T0 + 50)
    job = job_for(log, dirtiness, now_ms=T0 + 50, map_bytes=memory_bytes, hash_seed=3)
    stats = []

    def run():
        stats.append((yield from clean(job, files=log.files)))

    assert len(list(run())) >= 1
    contents = [each.read_bytes() for each in sorted(path.glob("*.cleaned"))]
    for each in path.glob("*.cleaned"):
        each.unlink()
    return contents, stats[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_same_is_written_with_and_without_it(
    tmp_path: Path, open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    log = open_log("t-0", config=CONFIG)
    compression = random.choice([0, 0, 4])
    for _ in range(300):
        records = [record(random, 900) for _ in range(random.choice([1, 30, 60]))]
        if random.random() < 0.003:
            records.append(Record(timestamp=T0, key=None, value=b"without a key"))
        batch = build_batch(
            records,
            compression=compression if random.random() < 0.8 else 0,
            timestamp_type=random.choice([0, 0, 0, 1]),
        )
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    log.flush()
    used: list[bool] = []
    original = Filter._newest

    def newest(self: Filter, window: Any) -> Any:
        used.append((found := original(self, window)) is not None)
        return found

    monkeypatch.setattr(Filter, "_newest", newest)
    options = {
        "cleaned_up_to": seed % 2 * log.end_offset // 3,
        "memory_bytes": 12_000 if seed == SMALL_MAP else 1 << 20,
    }
    with_it, stats = cleaned(log, tmp_path / "t-0", **options)
    assert any(used) or seed == SMALL_MAP
    monkeypatch.setattr(RememberedSizes.__init__, "__kwdefaults__", {"bytes_max": 0})
    used.clear()
    without_it, other_stats = cleaned(log, tmp_path / "t-0", **options)
    assert not any(used)
    assert with_it == without_it
    assert stats == other_stats
    assert 0 < stats.records_after < stats.records_before
