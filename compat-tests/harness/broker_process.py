"""A broker as a process of its own, driven only by signals, a port and a data directory.

Two kinds stand behind one class: Tidemark, and Apache Kafka as the control against which every case can be proven.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psutil
from harness.java import JAVA, classpath
from harness.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
READY_LINE = re.compile(
    r"Tidemark is ready: (?P<host>[^ ]+):(?P<port>\d+) \(node \d+, data in .+\)\. Stop with Ctrl-C\."
)


class BrokerProcess(ABC):
    """Owns one broker's life: start, clean stop, kill -9, and start again on the same port and data."""

    ready: ClassVar[re.Pattern[str]]
    start_seconds_max: ClassVar[float]
    clean_exit_code: ClassVar[int]

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.settings = dict(settings or {})
        self.protocol = self.settings.pop("security.protocol", "PLAINTEXT")  # of the one listener for clients
        self.environment: dict[str, str] = {}  # beside what the tests themselves run in
        self.port = 0
        self.host = "127.0.0.1"
        self.starts = 0
        self._log_start = 0
        self.is_paused = False
        self._process: subprocess.Popen[str] | None = None
        self._stdout: list[str] = []
        self._reader: threading.Thread | None = None
        self._is_ready = threading.Event()

    @abstractmethod
    def command(self) -> list[str]: ...

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def stdout(self) -> str:
        return "".join(self._stdout)

    @property
    def log_path(self) -> Path:
        return self.directory / "stderr.log"

    @property
    def log(self) -> str:
        """Everything logged so far, over all starts."""
        return self.log_path.read_text(errors="replace")

    @property
    def log_since_start(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def start(self) -> None:
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Start it, and do not wait: one that belongs to a cluster may need the others to become ready."""
        assert not self.is_running
        self.starts += 1
        self._is_ready.clear()
        self._stdout.clear()
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **self.environment},
            )
        self._reader = threading.Thread(target=self._read_stdout, args=(self._process,), daemon=True)
        self._reader.start()

    def await_ready(self) -> None:
        process = self._running()
        if not self._is_ready.wait(self.start_seconds_max) or process.poll() is not None:
            self._kill_with_stacks()
            raise AssertionError(f"the broker did not become ready\nstdout:\n{self.stdout}\nlog:\n{self.log[-8000:]}")

    def stop(self) -> None:
        """A clean stop must end on its own, in time, and say so with its exit code."""
        self.ask_to_stop()
        self.await_stopped()

    def ask_to_stop(self) -> None:
        self._running().send_signal(signal.SIGTERM)

    def await_stopped(self) -> None:
        code = self.await_exit()
        assert code == self.clean_exit_code, f"exit code {code} after SIGTERM; the log ends:\n{self.log[-8000:]}"

    def await_exit(self) -> int:
        """As `await_stopped`, of a broker that may have reason to fail: its exit code."""
        process = self._running()
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            self._kill_with_stacks()
            raise AssertionError(f"the broker ignored SIGTERM for 60 s; its log ends:\n{self.log[-8000:]}") from None
        self._reap()
        return code

    def _kill_with_stacks(self) -> None:
        """One that hangs: its log then ends with what each of its threads was doing."""
        if self.is_running:
            self._running().send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running().wait(5)
        if self.is_running:
            self.kill()
        else:
            self._reap()

    def kill(self) -> None:
        process = self._running()
        process.kill()
        process.wait()
        self._reap()

    def pause(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open, its clocks go on."""
        self._running().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)
        self.is_paused = False

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.stop()
        else:
            self.kill()
        self.start()

    def close(self) -> None:
        """The end of a fixture: whatever still runs must also be able to stop."""
        if self.is_running:
            self.stop()
        elif self._process is not None:
            self._reap()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def _read_stdout(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._stdout.append(line)
            if found := self.ready.search(line):
                self._note_address(found)
                self._is_ready.set()
        self._is_ready.set()

    def _note_address(self, found: re.Match[str]) -> None:
        """Kafka is told its port; Tidemark chooses one and says which."""
        return

    def _reap(self) -> None:
        assert self._process is not None
        if self._reader is not None:
            self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


class Tidemark(BrokerProcess):
    ready = READY_LINE
    start_seconds_max = 30
    clean_exit_code = 0

    def command(self) -> list[str]:
        settings = {
            "log.dirs": str(self.data),
            **self.settings,
            "listeners": f"{self.protocol}://127.0.0.1:{self.port}",
        }
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "tidemark.broker", *flags]

    def _note_address(self, found: re.Match[str]) -> None:
        self.host, self.port = found["host"], int(found["port"])


class ApacheKafka(BrokerProcess):
    ready = re.compile(r"Kafka Server started")
    start_seconds_max = 90
    clean_exit_code = 128 + signal.SIGTERM

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.port = free_port()
        self._properties = directory / "server.properties"
        self._write_properties(controller_port=free_port())
        self._format()

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._properties)]

    @property
    def log(self) -> str:
        return self.stdout + super().log

    def _java(self) -> list[str]:
        log4j = Path(__file__).with_name("log4j2.properties")
        keys = self.settings.get("sasl.oauthbearer.jwks.endpoint.url")  # Kafka asks nobody who is not named here
        allowed = [] if keys is None else [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"]
        return [
            *JAVA, "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", f"-Dlog4j2.configurationFile={log4j}", *allowed,
            "-cp", classpath(),
        ]  # fmt: skip

    def _write_properties(self, *, controller_port: int) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "listeners": f"{self.protocol}://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self.settings,
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def _format(self) -> None:
        cluster_id = uuid.uuid4().hex[:22]
        subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties),
             "--standalone"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip


KINDS: Mapping[str, type[BrokerProcess]] = {"tidemark": Tidemark, "kafka": ApacheKafka}
