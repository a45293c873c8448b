"""Spark over TLS, with a certificate and with a login: the official connector, both ways, and our own reader."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pytest
from harness.broker_process import BrokerProcess, Tidemark
from harness.sasl import broker_settings, java
from harness.scram_users import Users
from harness.tls import Certificates, TlsTidemark
from pyspark.sql import SparkSession

from tidemark.pipeline.source.datasource import register

ROWS = 500
SASL_SSL = {"security.protocol": "SASL_SSL"}
CONNECTOR: Mapping[str, Mapping[str, str]] = {"kafka": {}}
OURS: Mapping[str, Mapping[str, str]] = {"tidemark": {"tidemark.access": "protocol"}}


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
    spark: SparkSession, secured: BrokerProcess, certificates: Certificates
) -> None:
    check_both_ways(spark, secured, certificates.java(), {**CONNECTOR, **OURS})


@pytest.fixture(scope="module")
def with_logins(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {**broker_settings(protocol="SASL_SSL"), **certificates.broker_settings(client_auth="none")}
    started = Tidemark(tmp_path_factory.mktemp("with-logins"), settings)
    started.start()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("mechanism", "user", "password"), [("PLAIN", "bob", "bob-secret"), ("SCRAM-SHA-512", "ann", 'a"nn\\secret')]
)
def test_what_spark_writes_with_a_login_it_reads_with_a_login(
    spark: SparkSession,
    with_logins: BrokerProcess,
    certificates: Certificates,
    mechanism: str,
    user: str,
    password: str,
) -> None:
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": certificates.ca}
    if user == "ann":
        Users(with_logins.bootstrap, tls).set(user, password, mechanism)
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    check_both_ways(
        spark, with_logins, {**certificates.java(), **java(mechanism, user, escaped), **SASL_SSL}, {**CONNECTOR, **OURS}
    )


def check_both_ways(
    spark: SparkSession,
    broker: BrokerProcess,
    java_settings: Mapping[str, str],
    sources: Mapping[str, Mapping[str, str]],
) -> None:
    options = {f"kafka.{name}": value for name, value in java_settings.items()}
    options["kafka.bootstrap.servers"] = broker.bootstrap
    topic = f"spark-{uuid.uuid4()}"
    written = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    written.write.format("kafka").options(**options).option("topic", topic).save()
    register(spark)
    for source, extra in sources.items():
        read = spark.read.format(source).options(**options, **extra).option("subscribe", topic).load()
        values = {int(row.value) for row in read.selectExpr("CAST(value AS STRING) AS value").collect()}
        assert values == set(range(ROWS)), source
