"""One batch appended to a table, exactly once: each format's own log says which batches of which query it has."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.sinks.files import local_path
from tidemark.pipeline.sinks.written import ICEBERG_BY_US, last_batch_of_table
from tidemark.pipeline.spec import FileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID_SECONDS_MAX = 60


class TableBatches:
    """What a shared read calls for a table: as Spark's own streaming sinks write, batch by batch."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink
        self._looked = False
        self.query_id: Future[str] = Future()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        {"parquet": self._parquet, "delta": self._delta, "iceberg": self._iceberg}[self._sink.kind](batch, batch_id)

    def _parquet(self, batch: DataFrame, batch_id: int) -> None:
        """By Spark's own sink, with its list of files: a batch that is in it is not written again."""
        spark = batch.sparkSession
        jvm: Any = spark._jvm
        formats = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat()
        as_scala = jvm.org.apache.spark.api.python.PythonUtils
        sink = jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSink(
            spark._jsparkSession,
            local_path(self._sink.path),
            formats,
            as_scala.toSeq(list(self._sink.partition_by)),
            as_scala.toScalaMap(dict(self._sink.options)),
        )
        sink.addBatch(batch_id, batch._jdf)

    def _delta(self, batch: DataFrame, batch_id: int) -> None:
        writer = batch.write.format("delta").mode("append").options(**self._sink.options).option("mergeSchema", "true")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        known_by = {"txnAppId": self.query_id.result(QUERY_ID_SECONDS_MAX), "txnVersion": str(batch_id)}
        writer.options(**known_by).save(local_path(self._sink.path))

    def _iceberg(self, batch: DataFrame, batch_id: int) -> None:
        query = self.query_id.result(QUERY_ID_SECONDS_MAX)
        if not self._looked:  # only the first batch of a run can be one that was written before
            last = last_batch_of_table(batch.sparkSession, self._sink, query=query)
            if last is not None and last >= batch_id:
                return
            self._looked = True
        names = (f"snapshot-property.{name}" for name in ICEBERG_BY_US)
        known_by = dict(zip(names, (query, str(batch_id)), strict=True))
        batch.writeTo(self._sink.path).options(**{**self._sink.options, "fanout-enabled": "true", **known_by}).append()
