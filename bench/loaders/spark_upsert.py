"""Changes of a topic merged into a Delta table by a pipeline, once for practice and once for the clock."""

import io
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.loaders.process import serve
from bench.loaders.spark_read import cpu_s
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spark import session
from tidemark.pipeline.spec import load

BATCHES = 10
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


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = session("bench", master=parameters["master"], settings=settings)
    broker = psutil.Process(int(parameters["broker_pid"]))
    scratch = Path(tempfile.mkdtemp(prefix="bench-upsert-"))
    runs = itertools.count()
    records = int(parameters["records"])

    def merge() -> dict[str, float]:
        place = scratch / str(next(runs))
        place.mkdir()
        file = place / "upserts.yaml"
        said = {"bootstrap": parameters["bootstrap"], "topic": parameters["topic"], "batch": records // BATCHES}
        file.write_text(YAML.format(**said))
        began_cpu, began = cpu_s(broker), time.monotonic()
        Runner(spark, load(file), once=True, out=io.StringIO()).run()
        taken = {"wall_s": time.monotonic() - began, "cpu_s": cpu_s(broker) - began_cpu}
        kept = spark.read.format("delta").load(str(place / "newest")).count()
        if not 0 < kept <= int(parameters["keys"]):
            raise RuntimeError(f"the table has {kept} rows of {parameters['keys']} keys")
        return taken

    def work() -> dict[str, Any]:
        merge()
        return {"records": records, **merge()}

    return work


if __name__ == "__main__":
    serve(prepare)
