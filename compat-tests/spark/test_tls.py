"""Spark over a TLS listener that asks for certificates: the official connector, both ways, and our own reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.tls import Certificates, TlsTidemark
from pyspark.sql import SparkSession

from tidemark.pipeline.source.datasource import register

ROWS = 500


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = TlsTidemark(tmp_path_factory.mktemp("secured"), certificates.broker_settings())
    started.start()
    yield started
    started.close()


def test_what_spark_writes_over_tls_it_reads_over_tls(
    spark: SparkSession, secured: BrokerProcess, certificates: Certificates, tmp_path: Path
) -> None:
    options = {f"kafka.{name}": value for name, value in certificates.java().items()}
    options["kafka.bootstrap.servers"] = secured.bootstrap
    written = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    written.write.format("kafka").options(**options).option("topic", "spark").save()
    register(spark)
    for source, extra in (("kafka", {}), ("tidemark", {"tidemark.access": "protocol"})):
        read = spark.read.format(source).options(**options, **extra).option("subscribe", "spark").load()
        values = {int(row.value) for row in read.selectExpr("CAST(value AS STRING) AS value").collect()}
        assert values == set(range(ROWS)), source
