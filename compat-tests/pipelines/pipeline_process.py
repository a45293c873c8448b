"""`tidemark pipeline run` as a process of its own, with the JVM and the Python workers below it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from harness.java import SHORT_LIVED_ENVIRONMENT
from harness.waiting import eventually

# Seconds on a quiet machine, minutes on a busy one.
START_SECONDS_MAX = 300
END_SECONDS_MAX = 400
# For a pipeline's `spark` section: code does not pay that Spark writes and compiles for every query.
QUICK_SPARK = """\
  spark.ui.enabled: "false"
  spark.sql.shuffle.partitions: "1"
  spark.sql.adaptive.enabled: "false"
  spark.sql.codegen.wholeStage: "false"
  spark.sql.codegen.factoryMode: NO_CODEGEN
"""


class EndedEarly(Exception):
    """A process is gone that something is waited for from."""


class PipelineProcess:
    """Owns one run: what it says, who belongs to it, and how it is killed."""

    def __init__(
        self,
        file: Path,
        *arguments: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        own_group: bool = False,
    ) -> None:
        command = [sys.executable, "-m", "tidemark.cli.main", "pipeline", "run", str(file), *arguments]
        self._log = log
        self._said_before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=file.parent,
                env={**os.environ, **SHORT_LIVED_ENVIRONMENT, **(environment or {})},
                process_group=0 if own_group else None,
            )

    @property
    def said(self) -> str:
        return self._log.read_bytes()[self._said_before :].decode(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def jvm(self) -> psutil.Process:
        return next(each for each in self._below() if each.name() == "java")

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python processes that run Spark's tasks: children of the daemon that the JVM keeps."""
        return [each for each in self._below() if "pyspark.daemon" in command_of(each) and _is_daemons_child(each)]

    def await_line(self, pattern: str, *, seconds_max: float = START_SECONDS_MAX) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.said, re.MULTILINE)
            if not match:
                self._require_running()
            return match

        found_at_last = eventually(found, seconds_max=seconds_max, what=f"{pattern!r} in:\n{self.said}")
        assert found_at_last is not None
        return found_at_last

    def await_batches(self, sink: str, count: int) -> None:
        """Until the run has told of so many batches of its own."""

        def enough() -> bool:
            self._require_running()
            return len(re.findall(rf"^[\d:]+  {re.escape(sink)}  batch", self.said, re.MULTILINE)) >= count

        eventually(enough, seconds_max=START_SECONDS_MAX, what=f"{count} batches of {sink} in:\n{self.said}")

    def _require_running(self) -> None:
        """No assertion: those are waited out."""
        if self._process.poll() is not None:
            raise EndedEarly(f"the pipeline ended early:\n{self.said}")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def kill_driver(self) -> None:
        """Python's half, -9. The JVM must notice by itself."""
        jvm = self.jvm
        self._process.kill()
        self._process.wait()
        psutil.wait_procs([jvm], timeout=30)
        assert not jvm.is_running(), "the JVM outlived its driver"

    def kill_jvm(self) -> int:
        """The JVM's half, -9. Python must end by itself; its exit code."""
        self.jvm.kill()
        return self.await_end()

    def kill_everything(self) -> None:
        """Driver, JVM and workers at one moment, as when a machine goes."""
        everyone = [psutil.Process(self._process.pid), *self._below()]
        for each in everyone:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()
        psutil.wait_procs(everyone, timeout=30)

    def await_end(self, seconds_max: float = END_SECONDS_MAX) -> int:
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the pipeline did not end in {seconds_max} s:\n{self.said}") from None

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill_everything()

    def _below(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)


def command_of(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""


def _is_daemons_child(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return parent is not None and "pyspark.daemon" in command_of(parent)
    return False


@contextmanager
def running(
    file: Path,
    *arguments: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    own_group: bool = False,
) -> Iterator[PipelineProcess]:
    process = PipelineProcess(file, *arguments, log=log, environment=environment, own_group=own_group)
    try:
        yield process
    finally:
        process.close()
