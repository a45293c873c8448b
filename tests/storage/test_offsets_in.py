"""How many records a read returned, without a look into them."""

from __future__ import annotations

import pytest

from tidemark.storage import reading
from tidemark.storage.cold import ColdRead


def test_offsets_of_a_read_are_counted_to_its_end(open_log, make_batch, append):
    log = open_log()
    for _ in range(40):
        append(log, make_batch(5))
    assert len(log.segments) > 2
    offset, counted = 0, []
    while slices := log.read(offset=offset, limit_bytes=500):
        counted.append(log.offsets_in(offset, slices))
        offset += counted[-1]
    assert (offset, sum(counted)) == (200, 200)
    assert all(each % 5 == 0 for each in counted)


def test_what_is_not_in_memory_is_told_by_the_average(open_log, make_batch, append, monkeypatch: pytest.MonkeyPatch):
    log = open_log()
    for _ in range(40):
        append(log, make_batch(5))

    def cold(*_: object, **__: object) -> int:
        raise ColdRead

    monkeypatch.setattr(reading, "end_of_slice", cold)
    slices = log.read(offset=0, limit_bytes=sum(map(len, log.read(offset=0, limit_bytes=1))) * 10)
    assert log.offsets_in(0, slices) == 50
