"""What a Python worker of Spark does again with every task, and need not: most of what an empty task costs.

Before a task it lets Python forget where modules are, and for modules in archives Python then reads the archive's list
of files anew. Spark's own modules are in archives, with an importer for each of their packages: 0.2 s of CPU per
task. After a task it collects all generations of garbage; the modules that are loaded by then (PySpark, Arrow, numpy,
pandas, ours) are some 90,000 objects, and every collection goes through them and frees none of them.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from pathlib import PurePath
from zipimport import zipimporter

ARCHIVES_OF_SPARK = ("pyspark", "py4j-", "spark-core_")


def leave_out_loaded_modules() -> None:
    """From every task: what the next one would do again, it does not."""
    _leave_out_of_collections()
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and PurePath(importer.archive).name.startswith(ARCHIVES_OF_SPARK):
            del sys.path_importer_cache[place]  # made anew when it is next needed, from the list that Python keeps


@cache
def _leave_out_of_collections() -> None:
    """Once per process: by the first task everything is loaded."""
    gc.freeze()
