"""`spark.read.format("tidemark")`: topics read straight from segment files, or over the protocol, as Arrow batches.

`register(spark)` makes the format known; `TidemarkDataSource` is the class for `spark.dataSource.register`. Both are
loaded when first asked for, as they need PySpark, and the rest of the package does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.pipeline.source.datasource import TidemarkDataSource, register

__all__ = ["TidemarkDataSource", "register"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from tidemark.pipeline.source import datasource

        return getattr(datasource, name)
    raise AttributeError(name)
