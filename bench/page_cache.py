"""A page cache as it is on a machine that has run for a while: full, of pages that may be dropped.

On a machine that has just started, and on a virtual one whenever files have been deleted, a broker's next write needs
memory that nobody has used yet, and a hypervisor hands that out page by page: here 2 s of CPU for each GB, ten times
what the write itself costs. It is in the broker's own CPU time, it depends on what ran before, and a broker that lives
for months never meets it, since its page cache is full.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FREE_MAX: Final = 700 << 20  # the kernel keeps some of it free, whatever is read
CHUNK: Final = 4 << 20


def fill_page_cache(directory: Path) -> None:
    """Reads a file of holes, which takes memory and no disk, until hardly any memory is free."""
    if _meminfo("MemFree") <= FREE_MAX:
        return
    path = directory / "holes"
    buffer = bytearray(CHUNK)
    with path.open("a+b", buffering=0) as holes:
        holes.truncate(_meminfo("MemTotal"))
        at, end = 0, os.fstat(holes.fileno()).st_size
        while at < end and _meminfo("MemFree") > FREE_MAX:
            at += os.preadv(holes.fileno(), [buffer], at)


def _meminfo(field: str) -> int:
    with Path("/proc/meminfo").open() as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":")), 0)
