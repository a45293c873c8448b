"""Tables that hold the newest row of each key: every batch is merged into them, deletes included.

Exactly once without a look at what was merged before: a merge that is done again changes nothing, and of two changes to
one key the one that is later by the ordering column stays, in whatever order and however often they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.sinks.files import create_or_widen, table_name
from tidemark.pipeline.spec import FileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "__order"  # of the change that a row is from
DELETED = "__deleted"  # with soft deletes; the name that Debezium's own flattening gives it
QUERY_ID_SECONDS_MAX = 60
BATCH_SETTINGS = {  # by which a statement's commit says which batch of which query it is
    "delta": ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"),
    "iceberg": (
        "spark.sql.iceberg.snapshot-property.tidemark.query",
        "spark.sql.iceberg.snapshot-property.tidemark.batch",
    ),
}
DELETE_MARKS = ("_delete", "_tombstone")


def changes(view: DataFrame, sink: FileSink) -> DataFrame:
    """The view's plain columns, with the order of each change and whether it deletes."""
    from pyspark.sql import functions as f

    missing = [name for name in sink.keys if name not in view.columns]
    if missing:
        message = f"sinks.{sink.name}.keys: the view {sink.view!r} has no column {missing[0]!r}."
        raise CommandFailed(message, code=ExitCode.USAGE)
    order = sink.order_by or ("_offset" if "_offset" in view.columns else None)
    mark = sink.delete_when or next((name for name in DELETE_MARKS if name in view.columns), "false")
    plain = [f.col(f"`{name}`") for name in view.columns if not name.startswith("_")]
    return view.select(
        *plain,
        f.expr(f"coalesce({mark}, false)").alias(DELETED),
        # Without an order of its own (an aggregate's rows) a change is newer than those of the batches before.
        (f.lit(None).cast("bigint") if order is None else f.expr(order)).alias(ORDER),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The statement for one sink."""

    table: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]  # plain ones, keys included
    soft: bool
    by_batch: bool = False  # rows without an order of their own

    def sql(self, changed: str) -> str:
        same = " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in self.keys)
        written = [*self.columns, ORDER, *([DELETED] if self.soft else [])]
        names = ", ".join(f"`{name}`" for name in written)
        values = ", ".join(f"s.`{name}`" for name in written)
        update = ", ".join(f"t.`{name}` = s.`{name}`" for name in written)
        later = f"(t.`{ORDER}` IS NULL OR s.`{ORDER}` >= t.`{ORDER}`)"
        delete = "" if self.soft else f"WHEN MATCHED AND s.`{DELETED}` AND {later} THEN DELETE\n"
        alive = "" if self.soft else f" AND NOT s.`{DELETED}`"
        return (
            f"MERGE INTO {self.table} t USING {changed} s ON {same}\n{delete}"
            f"WHEN MATCHED AND {later} THEN UPDATE SET {update}\n"
            f"WHEN NOT MATCHED{alive} THEN INSERT ({names}) VALUES ({values})"
        )


def merge_of(view: DataFrame, sink: FileSink) -> Merge:
    columns = tuple(name for name in view.columns if not name.startswith("_"))
    by_batch = sink.order_by is None and "_offset" not in view.columns
    return Merge(
        table=table_name(sink), keys=sink.keys, columns=columns, soft=sink.deletes == "soft", by_batch=by_batch
    )


def create_table(spark: SparkSession, changed: DataFrame, sink: FileSink, merge: Merge) -> None:
    """Made if it is missing, widened by columns that are new."""
    create_or_widen(spark, rows_of_table(changed, merge), sink)


def rows_of_table(changed: DataFrame, merge: Merge) -> DataFrame:
    return changed.select(*merge.columns, ORDER, *([DELETED] if merge.soft else []))


class Upserts:
    """What foreachBatch calls: of each key the newest change of the batch, merged into the table."""

    def __init__(self, sink: FileSink, merge: Merge) -> None:
        self._sink = sink
        self._merge = merge
        self.query_id: Future[str] = Future()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        ordered = batch.withColumn(ORDER, f.lit(batch_id).cast("bigint")) if self._merge.by_batch else batch
        of_key = Window.partitionBy(*self._merge.keys).orderBy(f.col(ORDER).desc_nulls_last(), f.col(DELETED).desc())
        newest = ordered.withColumn("__rank", f.row_number().over(of_key)).where("__rank = 1").drop("__rank")
        name = f"changes_{abs(hash(self._sink.name)) % 1_000_000}"
        newest.createOrReplaceTempView(name)
        with settings_of_session(batch.sparkSession, self._record(batch_id)):
            batch.sparkSession.sql(self._merge.sql(name))

    def _record(self, batch_id: int) -> dict[str, str]:
        """Where the batch's number orders rows, it is noted in the table's own log: after a checkpoint was restored
        from a copy, the same numbers would stand for other rows."""
        if not self._merge.by_batch:
            return {}
        query = self.query_id.result(QUERY_ID_SECONDS_MAX)
        names = BATCH_SETTINGS[self._sink.kind]
        return dict(zip(names, (query, str(batch_id)), strict=True))


@contextmanager
def settings_of_session(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
