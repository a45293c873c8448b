"""What a broker's process does before it serves."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import textwrap
from pathlib import Path


def test_a_broker_raises_its_soft_limit_of_open_files_to_the_hard_one() -> None:
    code = textwrap.dedent(
        """
        import resource
        from tidemark.broker import __main__ as program

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))

        async def serve(_config):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            return True

        program._serve = serve
        raise SystemExit(program.main([]))
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])


def test_a_log_in_json_has_one_event_a_line_whatever_clients_send(tmp_path: Path) -> None:
    settings = {"log.dirs": tmp_path, "listeners": "PLAINTEXT://127.0.0.1:0", "tidemark.log.format": "json"}
    settings |= {"node.id": 3, "tidemark.log.slow.request.ms": 0}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "tidemark.broker", *words]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", ready)
        assert found is not None, ready
        hostile = b'ann\n{"level": "INFO"}\x1b[2J\xe2\x80\xa8'
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as client:
            body = struct.pack(">hhih", 3, 1, 77, len(hostile)) + hostile + struct.pack(">i", 0)
            client.sendall(struct.pack(">i", len(body)) + body)  # Metadata v1
            assert len(client.recv(4)) == 4
            client.sendall(struct.pack(">i", 12) + b"secret-bytes")
            while client.recv(4096):
                pass
    finally:
        broker.terminate()
        _, log = broker.communicate(timeout=30)
    events = [json.loads(line) for line in log.splitlines()]
    assert {event["node"] for event in events} == {3}
    [slow] = [event for event in events if event["message"].startswith("slow: Metadata")]
    told = {name: slow[name] for name in ("level", "listener", "client_id", "api", "api_version", "correlation_id")}
    assert told == {
        "level": "WARN",
        "listener": "PLAINTEXT",
        "client_id": hostile.decode(),
        "api": "Metadata",
        "api_version": 1,
        "correlation_id": 77,
    }
    assert slow["total_ms"] == slow["local_ms"] > 0
    [closed] = [event for event in events if event["message"].startswith("closing the connection from")]
    assert closed["client"] == slow["client"]
