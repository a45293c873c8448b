"""Leader epochs over random histories: whatever is deleted, cut off and opened again, they are those of the batches
that are left, and a look through the files finds nothing wrong."""

from __future__ import annotations

import random
from typing import Any

from tidemark.storage import LogConfig
from tidemark.storage.checking import Finding, Known, check_log, segment_files
from tidemark.storage.files import REAL_FILES

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, retention_bytes=1500)


def expected(batches: list[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    """Of (offset, epoch) of each batch of two records."""
    found: list[tuple[int, int]] = []
    for offset, epoch in batches:
        if offset + 2 > start and (not found or found[-1][0] != epoch):
            found.append((epoch, max(offset, start)))
    return found


def findings(log: Any) -> list[Finding]:
    directory = log.directory
    known = Known(end_offset=log.end_offset, epochs=log.epochs.entries())
    steps = check_log(REAL_FILES, directory, segment_files(REAL_FILES, directory), known)
    return [each for each in steps if isinstance(each, Finding)]


def test_epochs_are_those_of_the_batches_that_are_left(open_log: Any, make_batch: Any, append: Any) -> None:
    for seed in range(30):
        rng, name = random.Random(seed), f"topic-{seed}"
        log, batches, epoch = open_log(name, config=CONFIG), [], 0
        for _ in range(60):
            what = rng.choice(("append", "append", "append", "lead", "retention", "delete", "truncate", "open", "kill"))
            if what == "append":
                batches.append((append(log, make_batch(2), leader_epoch=epoch).base_offset, epoch))
            elif what == "lead":
                epoch += rng.randint(1, 3)
            elif what == "retention":
                log.apply_retention(0)
            elif what == "delete":
                log.delete_before(rng.randint(log.start_offset, log.end_offset))
            elif what == "truncate":
                log.truncate_to(rng.randint(log.start_offset, log.end_offset))
                batches = [each for each in batches if each[0] + 2 <= log.end_offset]
            else:
                start = log.start_offset
                log.close(clean=what == "open")
                log = open_log(name, config=CONFIG, clean=what == "open", start_offset=start)
            batches = [each for each in batches if each[0] + 2 > log.start_offset]
            if batches:
                assert log.epochs.entries() == expected(batches, log.start_offset), (seed, what)
            assert findings(log) == [], (seed, what)
        log.close()
