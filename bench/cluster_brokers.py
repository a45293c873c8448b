"""Three brokers of one kind as a cluster on this machine: laid out, started, killed singly, measured together."""

import base64
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from bench import wire
from bench.brokers import ENVIRONMENT, JVM, KAFKA_LOG4J, ROOT, START_TIMEOUT_S, STOP_TIMEOUT_S, TIDEMARK, free_port

NODES = (1, 2, 3)
CLUSTER_ID = "dGlkZW1hcmstYmVuY2gtMQ"
COMMON = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.segment.delete.delay.ms": "1000",
}
_KAFKA_ONLY = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    node_id: int
    port: int
    controller_port: int
    directory: Path

    @property
    def settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "data"),
        }


def lay_out(directory: Path) -> list[Node]:
    nodes = [
        Node(node_id=node_id, port=free_port(), controller_port=free_port(), directory=directory / str(node_id))
        for node_id in NODES
    ]
    for node in nodes:
        node.directory.mkdir(parents=True)
    return nodes


def tidemark_commands(nodes: list[Node]) -> dict[int, list[str]]:
    voters = ",".join(f"{node.node_id}@127.0.0.1:{node.controller_port}" for node in nodes)
    commands = {}
    for node in nodes:
        settings = {**node.settings, **COMMON, "controller.quorum.voters": voters, "cluster.id": CLUSTER_ID}
        pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        commands[node.node_id] = [sys.executable, "-m", "tidemark.broker", *pairs]
    return commands


def kafka_commands(nodes: list[Node], *, jars: Path) -> dict[int, list[str]]:
    """Formats the storage, too. Each node gets the heap that Kafka's own start script gives it."""
    ids = {node.node_id: base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode() for node in nodes}
    initial = ",".join(f"{node.node_id}@127.0.0.1:{node.controller_port}:{ids[node.node_id]}" for node in nodes)
    servers = ",".join(f"127.0.0.1:{node.controller_port}" for node in nodes)
    commands = {}
    for node in nodes:
        settings = {**node.settings, **COMMON, **_KAFKA_ONLY, "controller.quorum.bootstrap.servers": servers}
        properties, log4j = node.directory / "server.properties", node.directory / "log4j2.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        log4j.write_text(KAFKA_LOG4J, encoding="utf-8")
        java = ["java", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{jars}/*"]
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "--initial-controllers", initial]
        subprocess.run([*tool, "-c", str(properties)], check=True, stdout=subprocess.DEVNULL)
        commands[node.node_id] = [java[0], *JVM, *java[1:], "kafka.Kafka", str(properties)]
    return commands


class Cluster:
    """Started whole; single nodes may be killed and started again."""

    def __init__(self, name: str, directory: Path, *, jars: Path) -> None:
        self.name = name
        self._directory = directory
        self.nodes = {node.node_id: node for node in lay_out(directory)}
        nodes = list(self.nodes.values())
        self._commands = tidemark_commands(nodes) if name == TIDEMARK else kafka_commands(nodes, jars=jars)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._spent_cpu_s = 0.0
        self.bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        try:
            self.start_all()
        except BaseException as problem:
            self.stop()
            for node in nodes:
                said = (node.directory / "broker.log").read_text(errors="replace")[-1500:]
                problem.add_note(f"{name} {node.node_id} said: {said}")
            raise

    def _spawn(self, node_id: int) -> None:
        with (self.nodes[node_id].directory / "broker.log").open("ab") as log:
            command = self._commands[node_id]
            self._processes[node_id] = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=log, stderr=log)

    def _wait(self, node_id: int) -> None:
        process = self._processes[node_id]
        wire.wait_for_metadata(self.address(node_id), timeout_s=START_TIMEOUT_S, alive=lambda: process.poll() is None)

    def address(self, node_id: int) -> tuple[str, int]:
        return ("127.0.0.1", self.nodes[node_id].port)

    def start_all(self) -> None:
        for node_id in self.nodes:
            self._spawn(node_id)
        for node_id in self.nodes:
            self._wait(node_id)

    def start(self, node_id: int) -> None:
        self._spawn(node_id)
        self._wait(node_id)

    def kill(self, node_id: int) -> None:
        """As a power cut of one machine would: no goodbye."""
        self._spent_cpu_s += _cpu_s(self._processes[node_id].pid)
        self._processes[node_id].send_signal(signal.SIGKILL)
        self._processes[node_id].wait()

    def end(self, node_id: int) -> None:
        """As an operator would: it says goodbye."""
        self._spent_cpu_s += _cpu_s(self._processes[node_id].pid)
        self._processes[node_id].terminate()
        self._processes[node_id].wait(STOP_TIMEOUT_S)

    @property
    def bootstrap_of_live(self) -> str:
        live = [node for node in self.nodes.values() if self._processes[node.node_id].poll() is None]
        return ",".join(f"127.0.0.1:{node.port}" for node in live)

    def cpu_s(self) -> float:
        """User and system seconds of all nodes so far, those of the dead included."""
        return self._spent_cpu_s + sum(_cpu_s(each.pid) for each in self._processes.values() if each.poll() is None)

    def rss_bytes(self) -> int:
        alive = [each.pid for each in self._processes.values() if each.poll() is None]
        return sum(int(psutil.Process(pid).memory_info().rss) for pid in alive)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def wait_until(done: Callable[[], bool], *, timeout_s: float, what: str) -> float:
    """The seconds that it took."""
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > timeout_s:
            raise TimeoutError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - begun
