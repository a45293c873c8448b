"""A standalone Spark cluster on loopback: a master and workers as processes of their own, from PySpark's own jars."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
from harness.java import SHORT_LIVED_ENVIRONMENT
from harness.ports import free_port
from harness.waiting import eventually
from pipelines.pipeline_process import EndedEarly, command_of

HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 120
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# Executors inherit it. Without a home, a worker cannot say where the jars of its executors are.
ENVIRONMENT = {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    **SHORT_LIVED_ENVIRONMENT,
}


class StandaloneSpark:
    """Owns the processes, and everything that workers start below them."""

    def __init__(self, directory: Path, *, workers: int) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        try:
            self._start("master", "master.Master", "--port", str(port), said="I have been elected leader")
            for number in range(workers):
                name = f"worker-{number}"
                place = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / name))
                self._start(name, "worker.Worker", *place, self.master, said="Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def executors(self) -> list[psutil.Process]:
        return [each for each in self._below() if EXECUTOR in command_of(each)]

    def said(self) -> str:
        """What the executors wrote, for a failing test to show."""
        return "\n".join(each.read_text(errors="replace") for each in self._directory.glob("worker-*/*/*/stderr"))

    def close(self) -> None:
        """Workers end their executors when they are asked to end themselves; what is left is killed."""
        everyone = self._below()
        for process in self._started:
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for each in everyone:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(everyone, timeout=20)

    def _start(self, name: str, role: str, *arguments: str, said: str) -> None:
        log = self._directory / f"{name}.log"
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._directory,
                env={**os.environ, **ENVIRONMENT},
            )
        self._started.append(process)

        def is_ready() -> bool:
            found = log.read_text(errors="replace")
            if process.poll() is not None:
                raise EndedEarly(f"{name} ended early:\n{found}")
            return said in found

        eventually(is_ready, seconds_max=START_SECONDS_MAX, what=f"{said!r} of {name}")

    def _below(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self._started:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(process.pid).children(recursive=True)
        return found


@contextmanager
def standalone_spark(directory: Path, *, workers: int) -> Iterator[StandaloneSpark]:
    directory.mkdir()
    cluster = StandaloneSpark(directory, workers=workers)
    try:
        yield cluster
    finally:
        cluster.close()
