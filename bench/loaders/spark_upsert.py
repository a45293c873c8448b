"""Changes of a topic merged into a Delta table by a pipeline, once for practice and once for the clock."""

import io
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from bench.loaders.process import serve
from bench.loaders.spark_read import cpu_s
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spark import session
from tidemark.pipeline.spec import load

BATCHES = 10
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
YAML = """\
name: upserts
bootstrap: {bootstrap}
sources:
  changes:
    topic: {topic}
    format: json
    schema: {{id: LONG, amount: LONG, gone: BOOLEAN}}
    batch_records_max: {batch}
sinks:
  newest: {{type: delta, from: changes, path: newest, mode: upsert, keys: [id], delete_when: gone, trigger: 10ms}}
"""


class Upserts:
    """One topic's changes, merged again and again into a table of their own."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, *, records: int, keys: int) -> None:
        self._spark = spark
        self._text = YAML.format(bootstrap=bootstrap, topic=topic, batch=records // BATCHES)
        self._keys = keys
        self._scratch = Path(tempfile.mkdtemp(prefix="bench-upsert-"))
        self._runs = itertools.count()

    def merge_s(self) -> float:
        place = self._scratch / str(next(self._runs))
        place.mkdir()
        file = place / "upserts.yaml"
        file.write_text(self._text)
        began = time.monotonic()
        Runner(self._spark, load(file), once=True, out=io.StringIO()).run()
        taken = time.monotonic() - began
        kept = self._spark.read.format("delta").load(str(place / "newest")).count()
        if not 0 < kept <= self._keys:
            raise RuntimeError(f"the table has {kept} rows of {self._keys} keys")
        return taken


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    spark = session("bench", master=parameters["master"], settings=SETTINGS)
    broker = psutil.Process(int(parameters["broker_pid"]))
    records = int(parameters["records"])
    upserts = Upserts(
        spark, parameters["bootstrap"], parameters["topic"], records=records, keys=int(parameters["keys"])
    )

    def work() -> dict[str, Any]:
        upserts.merge_s()
        began_cpu = cpu_s(broker)
        return {"records": records, "wall_s": upserts.merge_s(), "cpu_s": cpu_s(broker) - began_cpu}

    return work


if __name__ == "__main__":
    serve(prepare)
