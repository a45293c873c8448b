"""Reading and writing topics through a format, in as few words as the cases need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
STREAM_SECONDS_MAX = 120


def by_partition(topic: str, values: Iterable[int]) -> str:
    """Offsets or times as the connector wants them: {"topic": {"0": 1, "1": 2}}."""
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """A session and a broker: `read` is a batch, `follow` a stream that ends when it has caught up."""

    spark: SparkSession
    bootstrap: str
    format: str = "kafka"

    def frame(self, **options: Any) -> DataFrame:
        return self.spark.read.format(self.format).options(**self._options(options)).load()

    def read(self, **options: Any) -> list[Row]:
        """All rows in the order of partitions and offsets."""
        return in_order(self.frame(**options).collect())

    def values(self, **options: Any) -> list[bytes | None]:
        return [_plain(row.value) for row in self.read(**options)]

    def stream(self, **options: Any) -> DataFrame:
        return self.spark.readStream.format(self.format).options(**self._options(options)).load()

    def follow(self, directory: Path, **options: Any) -> list[list[Row]]:
        """Runs a stream with its checkpoint in `directory` until it has caught up. Rows by micro-batch."""
        batches: list[list[Row]] = []

        def keep(frame: DataFrame, _batch: int) -> None:
            batches.append(in_order(frame.collect()))

        writer = self.stream(**options).writeStream.foreachBatch(keep).option("checkpointLocation", str(directory))
        patiently(lambda: finish(writer.trigger(availableNow=True).start()))
        return [batch for batch in batches if batch]

    def write(self, rows: list[tuple[Any, ...]], schema: str, **options: Any) -> None:
        frame = self.spark.createDataFrame(rows, schema).coalesce(1)
        frame.write.format("kafka").options(**self._options(options)).save()

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """`kafka_group_id` is `kafka.group.id`; the connector's own options have no dots."""
        named = {key.replace("_", "."): value for key, value in options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **named}


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """DeleteRecords in partition 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    gone = TopicPartition(topic, 0, offset)
    admin.delete_records([gone])[gone].result(30)


def patiently(run: Callable[[], None]) -> None:
    """Spark gives the Python process of a stream ten seconds to start. On a busy machine that is not always enough;
    nothing has happened by then, so it may be tried again."""
    for attempts_left in (2, 1, 0):
        try:
            run()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or not attempts_left:
                raise
        else:
            return


def finish(query: Any) -> None:
    """Waits for a stream that ends by itself; whatever it failed with is raised here."""
    try:
        assert query.awaitTermination(STREAM_SECONDS_MAX), f"still running: {query.lastProgress}"
    finally:
        query.stop()


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def flat(batches: Iterable[Iterable[Row]]) -> list[bytes | None]:
    return sorted(_plain(row.value) or b"" for batch in batches for row in batch)


def _plain(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
