"""Trigger.AvailableNow with a limit per batch, for `format("tidemark")`.

Spark 4.1 lets no Python source take part in AvailableNow: such a query ends after one batch, however little that was.
So queries follow each other, on one checkpoint, until the end that was there at the beginning is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidemark.pipeline.source.client import ReadingClient, TopicPartition
from tidemark.pipeline.source.datasource import NAME, from_stream, register, to_stream
from tidemark.pipeline.source.options import read_options
from tidemark.pipeline.source.planning import Planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def read_available(
    spark: SparkSession, options: Mapping[str, str], write: Callable[[DataFrame], DataStreamWriter]
) -> None:
    """Reads what is there now in batches of maxOffsetsPerTrigger. `write` says what becomes of the stream, and names
    its checkpointLocation."""
    register(spark)
    ends = _ends(options)
    up_to = {"tidemark.stream.end": json.dumps(to_stream(ends))}
    last: dict[TopicPartition, int] | None = None
    while True:
        stream = spark.readStream.format(NAME).options(**options, **up_to).load()
        query = write(stream).trigger(availableNow=True).start()
        query.awaitTermination()
        at = _position(query)
        if at == last or all(at.get(each, 0) >= end for each, end in ends.items()):
            return
        last = at


def _ends(options: Mapping[str, str]) -> dict[TopicPartition, int]:
    read = read_options(options, streaming=True)
    with ReadingClient(read.bootstrap, timeout_s=read.timeout_ms / 1000, security=read.security) as cluster:
        planner = Planner(cluster, read)
        return planner.latest(planner.partitions())


def _position(query: StreamingQuery) -> dict[TopicPartition, int]:
    """Where its last batch ended; nowhere, if there was none."""
    told = query.lastProgress
    if told is None:
        return {}
    content = json.loads(told.json) if hasattr(told, "json") else dict(told)
    end = content["sources"][0]["endOffset"]
    return from_stream(json.loads(end) if isinstance(end, str) else end or {})
