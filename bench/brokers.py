"""The two brokers as processes: how each is laid out on disk, started, measured from outside and stopped."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from bench import wire

ROOT = Path(__file__).resolve().parent.parent
TIDEMARK, KAFKA = "tidemark", "kafka"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
# A shell may forbid Python to keep its bytecode. An installed broker has it: it does not compile itself at every start.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
# What is not the default, on both: a deleted round leaves the disk at once, before the next one begins; a new group
# does not wait three seconds for members to come; a session may be short enough to wait for its end.
_SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}

# What bin/kafka-server-start.sh and kafka-run-class.sh give the JVM, heap included.
JVM = [
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
]  # fmt: skip

_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

# Errors only: Kafka's default INFO lines would cost it CPU that we do not want to count against it.
KAFKA_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
rootLogger.level = error
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything needed to start one broker in a directory of its own."""

    name: str
    argv: list[str]
    port: int
    directory: Path
    tls_port: int = 0
    certificates: Path | None = None


def make_certificates(directory: Path) -> Path:
    """Once for both brokers: same keys, same curve, same length."""
    command = [sys.executable, "-m", "tidemark.cli.main", "certs", "make", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return directory


def _tls_settings(certificates: Path | None, plain: str, tls_port: int) -> dict[str, str]:
    """A second listener beside the plain one, on which topics are made and counted."""
    if certificates is None:
        return {}
    return {
        "listeners": f"{plain},SSL://127.0.0.1:{tls_port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
    }


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def prepare_tidemark(
    directory: Path,
    *,
    python_options: tuple[str, ...] = (),
    certificates: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> Launch:
    directory.mkdir(parents=True)
    port, tls_port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
        **_SETTINGS,
        **_tls_settings(certificates, f"PLAINTEXT://127.0.0.1:{port}", tls_port),
        **(more or {}),
    }
    argv = [sys.executable, *python_options, "-m", "tidemark.broker"]
    for key, value in settings.items():
        argv += ["--set", f"{key}={value}"]
    return Launch(
        name=TIDEMARK, argv=argv, port=port, directory=directory, tls_port=tls_port, certificates=certificates
    )


def prepare_kafka(
    directory: Path, *, jars: Path, certificates: Path | None = None, more: Mapping[str, str] | None = None
) -> Launch:
    """Writes the configuration and formats the storage, which is not part of a start."""
    directory.mkdir(parents=True)
    port, properties, log4j = free_port(), directory / "server.properties", directory / "log4j2.properties"
    settings = {"port": port, "controller_port": free_port(), "data": directory / "data"}
    tls_port = free_port()
    plain = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{settings['controller_port']}"
    secured = _tls_settings(certificates, plain, tls_port)
    if secured:
        secured["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL"
        secured["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    common = "".join(f"{key}={value}\n" for key, value in {**_SETTINGS, **secured, **(more or {})}.items())
    properties.write_text(_KAFKA_PROPERTIES.format(**settings) + common, encoding="utf-8")
    log4j.write_text(KAFKA_LOG4J, encoding="utf-8")
    java = ["java", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{jars}/*"]
    storage_tool = [*java, "kafka.tools.StorageTool", "format", "-t", "dGlkZW1hcmstYmVuY2gtMQ", "--standalone"]
    subprocess.run([*storage_tool, "-c", str(properties)], check=True, stdout=subprocess.DEVNULL)
    argv = [java[0], *JVM, *java[1:], "kafka.Kafka", str(properties)]
    return Launch(name=KAFKA, argv=argv, port=port, directory=directory, tls_port=tls_port, certificates=certificates)


class Running:
    """A started broker. Its own CPU and memory count, with those of any process it starts."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.name = launch.name
        self.address = ("127.0.0.1", launch.port)
        self.bootstrap = f"127.0.0.1:{launch.port}"
        self.client: dict[str, str] = {"bootstrap.servers": self.bootstrap}
        self.data = launch.directory / "data"
        self._log = (launch.directory / "broker.log").open("wb")
        started = time.monotonic()
        self._process = subprocess.Popen(launch.argv, cwd=ROOT, env=ENVIRONMENT, stdout=self._log, stderr=self._log)
        self.pid = self._process.pid
        self._stat = psutil.Process(self.pid)
        try:
            wire.wait_for_metadata(self.address, timeout_s=START_TIMEOUT_S, alive=self._alive)
        except BaseException as problem:
            self.stop()
            log = (launch.directory / "broker.log").read_text(errors="replace")[-2000:]
            problem.add_note(f"{self.name} said: {log}")
            raise
        self.start_s = time.monotonic() - started
        self.start_cpu_s = self.cpu_s()

    @contextmanager
    def over_tls(self) -> Iterator[None]:
        """Meanwhile the loads connect to the TLS listener. What makes and counts topics stays on the plain one."""
        assert self.launch.certificates is not None, "no certificates were made"
        plain, address = self.client, f"127.0.0.1:{self.launch.tls_port}"
        ca = str(self.launch.certificates / "ca.pem")
        self.client = {"bootstrap.servers": address, "security.protocol": "SSL", "ssl.ca.location": ca}
        try:
            yield
        finally:
            self.client = plain

    def _alive(self) -> bool:
        return self._process.poll() is None

    def _family(self) -> list[psutil.Process]:
        return [self._stat, *self._stat.children(recursive=True)]

    def cpu_s(self) -> float:
        """User and system seconds so far. The kernel counts in nanoseconds but shows hundredths of a second."""
        times = [process.cpu_times() for process in self._family()]
        return sum(one.user + one.system for one in times)

    def rss_bytes(self) -> int:
        return sum(int(process.memory_info().rss) for process in self._family())

    def open_files(self) -> int:
        return int(self._stat.num_fds())

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.launch.directory, ignore_errors=True)


def write_dirty_pages() -> None:
    """Writes dirty pages out, so that no broker pays for what another (or a round before) left behind."""
    os.sync()
