"""One Spark session for all Spark suites, with the jars that `make spark-jars` gathers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from harness.java import SHORT_LIVED_ENVIRONMENT
from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
JARS = REPOSITORY / ".cache" / "spark-jars"

SETTINGS: dict[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # It lives for a few minutes, of which compiling hard and collecting in parallel would take some.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
}


def start() -> SparkSession:
    jars = sorted(str(path) for path in JARS.glob("*.jar"))
    assert any("spark-sql-kafka" in jar for jar in jars), f"no connector in {JARS}: run `make spark-jars`"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The workers find our packages as the tests do, whatever directory they run in.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    builder = SparkSession.builder.master("local[2]").appName("compat").config("spark.jars", ",".join(jars))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    with mock.patch.dict(os.environ, SHORT_LIVED_ENVIRONMENT):
        return builder.getOrCreate()
