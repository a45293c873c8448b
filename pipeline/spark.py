"""A Spark session with our jars: from a folder that `make spark-jars` filled, never from the network."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

JARS_VARIABLE = "TIDEMARK_SPARK_JARS"
_LOCAL = re.compile(r"local(\[(?P<threads>[^,\]]+)\])?")
# A task that fails is tried again, on one machine too: Spark's local mode would give up at once.
TASK_ATTEMPTS = 4
SHUFFLE_PARTITIONS_MAX = 4

DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    # Queries have sessions of their own: what one of them wrote, another that kept the table in memory would not see.
    "spark.sql.catalog.lake.cache-enabled": "false",
    # Delta rebuilds its snapshot with this many tasks; its default of 50 costs seconds per batch on a laptop.
    "spark.databricks.delta.snapshotPartitions": "2",
    # VACUUM lists a table's directories with this many tasks; the default of 10,000 takes minutes on a laptop.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
}


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# For sessions of a minute or two over a handful of rows: to compile well what runs once, by Java's compiler and by
# Spark's own for every query, takes longer than all that it saves.
SHORT_LIVED: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def java_options(wanted: str | None) -> str:
    """Ours, and then those that are asked for."""
    log4j = Path(__file__).with_name("log4j2.properties")
    ours = f"-Dlog4j2.configurationFile={log4j.as_uri()} -Dderby.system.home=/tmp"
    return ours if wanted is None else f"{ours} {wanted}"


def spark_jars() -> list[Path]:
    """The jars that the pom names: in $TIDEMARK_SPARK_JARS, or in .cache/spark-jars beside the packages."""
    folder = Path(os.environ.get(JARS_VARIABLE) or Path(__file__).resolve().parents[1] / ".cache" / "spark-jars")
    jars = sorted(folder.glob("*.jar"))
    if not any(jar.name.startswith("spark-sql-kafka") for jar in jars):
        raise CommandFailed(f"Spark's jars are not in {folder}: run `make spark-jars`, or set {JARS_VARIABLE}.")
    return jars


def retrying_master(master: str) -> str:
    """`local[2]` as `local[2,4]`: with as many attempts per task as a cluster has by default."""
    found = _LOCAL.fullmatch(master)
    return master if found is None else f"local[{found['threads'] or '1'},{TASK_ATTEMPTS}]"


def shuffle_partitions(master: str) -> int:
    """As many as one machine can work on at once, up to four: each is a task and a file of state more in every batch. A
    query with a checkpoint keeps the number that it began with."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return SHUFFLE_PARTITIONS_MAX
    threads = found["threads"] or "1"
    cores = int(threads) if threads.isdecimal() else os.cpu_count() or 1
    return max(1, min(SHUFFLE_PARTITIONS_MAX, cores))


def session(
    name: str,
    *,
    master: str = "local[*]",
    warehouse: str = "warehouse",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """Starts a JVM of our own, which says what it has to say in `log`, or joins the session that is there already."""
    if master.startswith("local"):  # other machines have a Python of their own, elsewhere
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise CommandFailed("PySpark is not installed: run `make spark`, or pip install 'tidemark[spark]'.") from None
    conf = SparkConf().setAppName(f"tidemark-{name}").setMaster(retrying_master(master))
    jars = ",".join(map(str, spark_jars()))
    wanted = {
        **DEFAULTS,
        "spark.sql.shuffle.partitions": str(shuffle_partitions(master)),
        "spark.jars": jars,
        "spark.sql.catalog.lake.warehouse": str(Path(warehouse).absolute()) if "://" not in warehouse else warehouse,
        **(settings or {}),
        JAVA_OPTIONS: java_options((settings or {}).get(JAVA_OPTIONS)),
    }
    if SparkContext._active_spark_context is not None:
        # A catalog reads its settings when it is first used. With another place now, our own session would go on with
        # the old one, and streaming queries, which have sessions of their own, would look in the new one.
        del wanted["spark.sql.catalog.lake.warehouse"]
    for key, value in wanted.items():
        conf.set(key, value)
    _hush()
    _launch(conf, log)
    made = SparkSession.builder.config(conf=conf).getOrCreate()
    if not _LOCAL.fullmatch(master):
        _ship_ourselves(made)
    return made


def _launch(conf: SparkConf, log: Path | None) -> None:
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None:
        return
    try:
        if log is None:
            SparkContext(conf=conf)
            return
        with log.open("ab") as out, _ignored(signal.SIGTERM):
            gateway = launch_gateway(conf, {"stderr": out})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError:
        raise CommandFailed(f"Spark's JVM did not start{_last_words(log)}; Java 17 is needed.") from None
    except Exception as error:  # Java's exceptions: a master that does not answer, a setting that makes no sense
        why = str(error).strip().splitlines()
        reason = next((line for line in why if "Exception: " in line), why[0] if why else type(error).__name__)
        raise CommandFailed(f"Spark did not start: {reason.strip().rstrip('.')}.") from None


@contextmanager
def _ignored(number: int) -> Iterator[None]:
    """What is ignored when a JVM starts, it never handles: a SIGTERM to all of us (systemd, a process group) is ours to
    act upon, and the JVM is there until the batches at work are done. Ctrl-C PySpark keeps from it itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def _last_words(log: Path | None) -> str:
    said = [] if log is None else log.read_text(errors="replace").strip().splitlines()
    return f": {said[-1].rstrip('.')}" if said else ""


@contextmanager
def reporting_jvm_exit(made: SparkSession, *, log: Path) -> Iterator[None]:
    """Whatever fails because the JVM is gone, fails with a sentence; at the end the session is stopped."""
    process = made.sparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        yield
    except CommandFailed:
        raise
    except Exception as error:
        with suppress(Exception):
            process.wait(5)  # its connections may break a moment before it is gone
        if process.poll() is None:
            raise
        raise CommandFailed(
            f"Spark's JVM has ended (exit code {process.returncode}): killed, or out of memory? Start the pipeline "
            f"again, and it goes on where it was. What the JVM said is in {log}."
        ) from error
    finally:
        if process.poll() is None:
            made.stop()


def _hush() -> None:
    """PySpark prints a stack trace in each of its threads for what we tell in one sentence."""
    from pyspark import accumulators

    logging.getLogger().addHandler(logging.NullHandler())
    for name in ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]


def _ship_ourselves(made: SparkSession) -> None:
    """Executors on other machines need our modules; confluent-kafka and pyarrow they must have."""
    import shutil
    import tempfile

    ours = Path(__file__).parents[1]
    folder = Path(tempfile.mkdtemp(prefix="tidemark-"))
    for package in ("pipeline", "protocol", "storage"):
        copy = folder / "packages" / "tidemark" / package
        shutil.copytree(ours / package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module in ours.glob("*.py"):  # what the packages share
        shutil.copy(module, copy.parent)
    made.sparkContext.addPyFile(shutil.make_archive(str(folder / "tidemark"), "zip", folder / "packages"))
