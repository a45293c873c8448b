"""`tidemark start --nodes N`: a cluster on one machine. One parent process, and a broker process per node.

Ports are counted up from the listener's, and the controller listeners' come after them; each node has a folder of its
own below the data directory. The machine is the rack of all, so that replicas spread over machines before cores.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from tidemark import portable
from tidemark.broker.config import BrokerConfig, ConfigError, Listener, load_config
from tidemark.failure import CommandFailed, ExitCode

STOP_SECONDS_MAX: Final = 30.0
READY: Final = "Tidemark is ready:"
CONTROLLER: Final = "CONTROLLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node's place: its id, and the settings that differ from the others'."""

    node_id: int
    address: str
    settings: tuple[str, ...]


def plan(config: BrokerConfig, count: int) -> list[NodePlan]:
    listeners = config.parsed_listeners
    if any(listener.port == 0 for listener in (*listeners, *config.parsed_http_listeners)):
        raise CommandFailed(
            "--nodes counts ports up from the listener's, which therefore cannot be 0.", code=ExitCode.USAGE
        )
    first = config.node_id if "node.id" in config.explicit else 1
    ids = range(first, first + count)
    # The clients' ports first, then those of the controller listeners.
    own_port = max(listener.port for listener in listeners) + count
    http = config.parsed_http_listeners
    host = _reachable(listeners[0].host)
    voters = ",".join(f"{ids[k]}@{host}:{own_port + k}" for k in range(_voters(count)))
    common = _common(config, count)
    plans = []
    for k, node_id in enumerate(ids):
        opened = [_moved(listener, k) for listener in listeners]
        settings = [
            f"node.id={node_id}",
            f"listeners={','.join([*map(str, opened), f'{CONTROLLER}://{_bracketed(host)}:{own_port + k}'])}",
            f"controller.listener.names={CONTROLLER}",
            f"controller.quorum.voters={voters}",
            f"log.dirs={','.join(str(Path(path) / f'node-{node_id}') for path in config.log_dirs)}",
            *common,
        ]
        if http:
            settings.append(f"http.listeners={','.join(str(_moved(listener, k)) for listener in http)}")
        if config.advertised_listeners:
            advertised = [_moved(listener, k) for listener in config.parsed_advertised_listeners]
            settings.append(f"advertised.listeners={','.join(map(str, advertised))}")
        if config.metadata_log_dir is not None:
            settings.append(f"metadata.log.dir={Path(config.metadata_log_dir) / f'node-{node_id}'}")
        address = f"{_bracketed(_reachable(opened[0].host))}:{opened[0].port}"
        plans.append(NodePlan(node_id=node_id, address=address, settings=tuple(settings)))
    return plans


def _voters(count: int) -> int:
    """An odd number of nodes keeps the metadata: more votes than five cost more than they save."""
    return count if count < 3 else min(count - (count + 1) % 2, 5)


def _common(config: BrokerConfig, count: int) -> list[str]:
    """What a cluster wants otherwise than a single node, unless the settings say otherwise."""
    wanted = {
        "broker.rack": socket.gethostname(),
        "default.replication.factor": str(min(3, count)),
        "min.insync.replicas": "2" if count >= 3 else "1",
    }
    return [f"{name}={value}" for name, value in wanted.items() if name not in config.explicit]


def _moved(listener: Listener, by: int) -> Listener:
    return Listener(
        name=listener.name,
        host=listener.host,
        port=listener.port + by,
        security_protocol=listener.security_protocol,
    )


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Nodes:
    """The running processes. `run` returns when all of them have ended."""

    def __init__(self, plans: list[NodePlan], *, command: list[str]) -> None:
        self._plans = plans
        self._command = command
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        self._ready: set[int] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def run(self) -> int:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._stop)
        for each in self._plans:
            self._start(each)
        for process in self._processes.values():
            process.wait()
        for thread in self._threads:
            thread.join()
        codes = [process.returncode for process in self._processes.values()]
        return ExitCode.OK if not any(codes) else ExitCode.FAILED

    def _start(self, node: NodePlan) -> None:
        command = list(self._command)
        for setting in node.settings:
            command += ["--set", setting]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only the parent, which tells them all
            preexec_fn=portable.end_with_parent if portable.IS_LINUX else None,
        )
        self._processes[node.node_id] = process
        for stream, copy in ((process.stdout, self._copy_output), (process.stderr, self._copy_log)):
            thread = threading.Thread(target=copy, args=(node, stream), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _copy_output(self, node: NodePlan, stream: Iterable[str]) -> None:
        for line in stream:
            if not line.startswith(READY):
                print(f"node {node.node_id}: {line}", end="", flush=True)
                continue
            with self._lock:
                self._ready.add(node.node_id)
                is_last = len(self._ready) == len(self._plans)
            if is_last:
                addresses = ",".join(each.address for each in self._plans)
                print(f"{READY} {addresses} ({len(self._plans)} nodes). Stop with Ctrl-C.", flush=True)
        if not self._stopping:
            print(f"tidemark: node {node.node_id} has ended", file=sys.stderr, flush=True)

    def _copy_log(self, node: NodePlan, stream: Iterable[str]) -> None:
        for line in stream:
            sys.stderr.write(f"node {node.node_id}: {line}")
            sys.stderr.flush()

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        signal_number = signal.SIGKILL if self._stopping else signal.SIGTERM  # a second Ctrl-C ends them at once
        self._stopping = True
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal_number)


def start_nodes(count: int, *, config: Path | None, settings: list[str], command: list[str]) -> int:
    """`command` starts one node; each node's own settings are added to it."""
    try:
        loaded = load_config(config, settings)
    except (ConfigError, OSError) as error:
        raise CommandFailed(str(error), code=ExitCode.USAGE) from error
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    return Nodes(plan(loaded, count), command=command).run()
