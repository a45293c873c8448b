"""Python's garbage collector, as a broker's own process wants it.

Objects are freed when nothing refers to them any more; the collector is for cycles, of which a broker makes hardly
any. A full collection visits every object, 60 ms and more with thousands of partitions, and no client is served
meanwhile. The younger generations, where cycles show up, are collected after ten thousand objects, not seven hundred:
fifty requests of HTTP's that are under way, with a hundred records each, are more than that, and were visited several
times a second, one or two milliseconds each time.
"""

from __future__ import annotations

import gc
from typing import Final

# The second generation after twenty thousand objects have been added to those that live, 6 ms each time while ten
# thousand partitions are made (after forty thousand it was 10 to 15); a full collection after eight million.
THRESHOLDS: Final = (10_000, 1, 400)


def collect_rarely() -> None:
    gc.set_threshold(*THRESHOLDS)
    gc.collect()
    gc.freeze()  # what is loaded stays: the collector need not look through it in the middle of a request
