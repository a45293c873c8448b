"""`spark.read.format("tidemark")`: topics read straight from segment files, or over the protocol, as Arrow batches.

`register(spark)` makes the format known; `TidemarkDataSource` is the class for `spark.dataSource.register`;
`read_available` reads what is there now, batch by batch. They are loaded when first asked for, as they need PySpark,
and the rest of the package does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.pipeline.source.available_now import read_available
    from tidemark.pipeline.source.datasource import TidemarkDataSource, register

__all__ = ["TidemarkDataSource", "read_available", "register"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from tidemark.pipeline.source import available_now, datasource

        return getattr(available_now if name == "read_available" else datasource, name)
    raise AttributeError(name)
