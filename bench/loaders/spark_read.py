"""Reads a topic in one Spark session in several ways, each once for practice and once for the clock."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
from pyspark.sql import SparkSession

from bench.brokers import ROOT
from bench.loaders.process import serve
from tidemark.pipeline.source import register

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1500m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "ERROR",
}


def prepare(parameters: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    spark = _session(parameters["master"])
    register(spark)
    broker = psutil.Process(int(parameters["broker_pid"]))

    def read_all(way: dict[str, Any]) -> int:
        reader = spark.read.format(way["format"]).options(**way["options"])
        # Every value is looked at, and nothing leaves Spark but the answer.
        row = reader.load().selectExpr("count(*) as records", "sum(length(value)) as bytes").first()
        assert row is not None
        if row.bytes != row.records * int(parameters["size"]):
            raise RuntimeError(f"{row.records} records have {row.bytes} bytes")
        return int(row.records)

    def measured(way: dict[str, Any]) -> dict[str, float]:
        records = read_all(way)
        began_cpu, began = cpu_s(broker), time.monotonic()
        for _ in range(int(parameters["passes"])):
            if read_all(way) != records:
                raise RuntimeError("a topic that nobody writes to has changed")
        wall_s = time.monotonic() - began
        return {"records": records * int(parameters["passes"]), "wall_s": wall_s, "cpu_s": cpu_s(broker) - began_cpu}

    def work() -> dict[str, Any]:
        ways = {name: measured(way) for name, way in parameters["ways"].items()}
        return {"records": sum(int(way["records"]) for way in ways.values()), "ways": ways}

    return work


def _session(master: str) -> SparkSession:
    jars = sorted(str(path) for path in (ROOT / ".cache" / "spark-jars").glob("*.jar"))
    if not any("spark-sql-kafka" in jar for jar in jars):
        raise SystemExit("Spark's jars are not there: run `make spark-jars`")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    builder = SparkSession.builder.master(master).appName("bench").config("spark.jars", ",".join(jars))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def cpu_s(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in [process, *process.children(recursive=True)]]
    return float(sum(each.user + each.system for each in times))


if __name__ == "__main__":
    serve(prepare)
