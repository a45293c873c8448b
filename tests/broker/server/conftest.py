"""What tests of the event loop's delay share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tidemark.broker.core.garbage import collect_rarely


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """As a broker's process does it: the collector does not look through what was there before."""
    before = gc.get_threshold()
    collect_rarely()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
