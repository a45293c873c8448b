"""Python's garbage collector, as a broker's own process wants it.

Objects are freed when nothing refers to them any more; the collector is for cycles, of which a broker makes hardly
any. A full collection visits every object, 60 ms and more with thousands of partitions, and no client is served
meanwhile. The younger generations, where cycles show up, are collected as usual.
"""

from __future__ import annotations

import gc
from typing import Final

# A full collection after a thousand of the generation below, not ten: that is, when seven million objects have been
# added to those that live.
THRESHOLDS: Final = (700, 10, 1000)


def collect_rarely() -> None:
    gc.set_threshold(*THRESHOLDS)
    gc.collect()
    gc.freeze()  # what is loaded stays: the collector need not look through it in the middle of a request
