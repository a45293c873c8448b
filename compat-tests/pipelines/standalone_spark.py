"""A standalone Spark cluster on this machine: a master and workers as processes of their own, from PySpark's jars."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
from harness.ports import free_port
from harness.waiting import eventually
from pipelines.pipeline_process import SHORT_LIVED

START_SECONDS_MAX = 120


class StandaloneSpark:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        directory.mkdir()

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start(self, *, workers: int) -> None:
        """Each worker has one core, and so one executor with one task at a time."""
        self._launch("master.Master", "--port", str(self._port), log="master.log", ready="I have been elected leader")
        for number in range(workers):
            work = self._directory / f"work-{number}"
            one = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master)
            self._launch("worker.Worker", *one, log=f"worker-{number}.log", ready="Successfully registered with master")

    def _launch(self, name: str, *arguments: str, log: str, ready: str) -> None:
        jars = Path(pyspark.__file__).parent / "jars"
        command = ["java", "-Xmx256m", "-cp", f"{jars}/*"]
        command += [f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        file = self._directory / log
        with file.open("wb") as out:
            environment = {**os.environ, **SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1"}
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment))
        eventually(lambda: ready in file.read_text(errors="replace"), seconds_max=START_SECONDS_MAX, what=str(file))

    def executors(self, worker: int) -> list[psutil.Process]:
        return psutil.Process(self._processes[1 + worker].pid).children(recursive=True)

    def kill_worker(self, worker: int) -> None:
        """With its executor and the Python processes below it, -9: as when its machine goes."""
        everyone = [psutil.Process(self._processes[1 + worker].pid), *self.executors(worker)]
        for each in everyone:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._processes[1 + worker].wait()

    def close(self) -> None:
        for each in reversed(self._processes):
            if each.poll() is None:
                below = psutil.Process(each.pid).children(recursive=True)
                each.kill()
                each.wait()
                for one in below:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()


@contextmanager
def standalone_spark(directory: Path, *, workers: int) -> Iterator[StandaloneSpark]:
    cluster = StandaloneSpark(directory)
    try:
        cluster.start(workers=workers)
        yield cluster
    finally:
        cluster.close()


def settings_of_driver() -> Mapping[str, str]:
    """So that everything stays on this machine's loopback."""
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
