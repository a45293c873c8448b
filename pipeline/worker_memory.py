"""What a Python worker of Spark has loaded, kept out of its garbage collections.

Spark's worker collects all generations after every task. The modules that it has loaded by then (PySpark, Arrow,
numpy, pandas, ours) are some 90,000 objects: every collection goes through them, 40 to 50 ms of CPU, and frees none of
them.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def leave_out_loaded_modules() -> None:
    """Once per process, from a task: by then everything is loaded."""
    gc.freeze()
