"""A real schema registry (Apicurio, by Confluent's API), which keeps its schemas in the tests' own broker."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.ports import free_port

JAR = Path(__file__).parents[3] / ".cache" / "registry" / "app" / "registry.jar"
START_SECONDS_MAX = 180


class RealRegistry:
    def __init__(self, url: str) -> None:
        self.url = url

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = self._ask("POST", f"/subjects/{subject}/versions", {"schemaType": kind, "schema": text})
        return int(answer["id"])

    def versions(self, subject: str) -> list[int]:
        try:
            return [int(each) for each in self._ask("GET", f"/subjects/{subject}/versions")]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []

    def text(self, number: int) -> str:
        return str(self._ask("GET", f"/schemas/ids/{number}")["schema"])

    def require_compatibility(self, subject: str, level: str) -> None:
        """Apicurio takes a rule only for a subject that is there."""
        self._ask("PUT", f"/config/{subject}", {"compatibility": level})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="session")
def registry(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    where = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
    }
    log = tmp_path_factory.mktemp("registry") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(JAR)],
            env={**os.environ, **where}, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent,
        )  # fmt: skip
    try:
        _wait_until_it_answers(url, process, log)
        yield RealRegistry(url)
    finally:
        process.kill()
        process.wait()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
