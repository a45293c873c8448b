"""OpenLineage's events: their shape, and that nobody waits for who receives them."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.lineage import told
from tidemark.pipeline.spec import Pipeline, load

YAML = """\
name: shop
bootstrap: one:9092,two:9092
sources:
  orders: {{topic: orders, dead_letter_topic: orders.dead, backfill: {{path: lake/old}}}}
  old: {{type: delta, path: "s3://bucket/old/orders"}}
sinks:
  out: {{from: orders, topic: copy}}
  table: {{type: iceberg, from: orders, path: lake.db.orders}}
  seen: {{type: console, from: orders}}
lineage: {lineage}
"""


def declared(directory: Path, lineage: str) -> Pipeline:
    file = directory / "shop.yaml"
    file.write_text(YAML.format(lineage=lineage))
    return load(file)


class Received(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: list[dict[str, Any]] = []
        self.paths: set[tuple[str, str | None]] = set()


class _Handler(BaseHTTPRequestHandler):
    server: Received

    def do_POST(self) -> None:
        self.server.paths.add((self.path, self.headers.get("Authorization")))
        self.server.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Received]:
    with Received() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_run_tells_what_it_reads_and_writes(tmp_path: Path, receiver: Received) -> None:
    url = f"http://127.0.0.1:{receiver.server_port}/"
    pipeline = declared(tmp_path, f"{{url: '{url}', api_key: secret, namespace: sales, file: events.ndjson}}")
    with told(pipeline, lambda: {"out": 7}):
        pass
    assert receiver.paths == {("/api/v1/lineage", "Bearer secret")}
    start, complete = receiver.events
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (start["job"]["namespace"], start["job"]["name"]) == ("sales", "shop")

    def named(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(each["namespace"], each["name"]) for each in datasets]

    assert named(start["inputs"]) == [
        ("kafka://one:9092", "orders"),
        ("file", str(tmp_path / "lake" / "old")),
        ("s3://bucket", "old/orders"),
    ]
    assert named(complete["outputs"]) == [
        ("kafka://one:9092", "copy"),
        (f"file://{tmp_path}/lake", "lake.db.orders"),
        ("kafka://one:9092", "orders.dead"),
    ]
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert "outputFacets" not in complete["outputs"][1]
    assert [json.loads(line) for line in (tmp_path / "events.ndjson").read_text().splitlines()] == receiver.events


def test_a_failure_is_told_with_its_reason(tmp_path: Path) -> None:
    pipeline = declared(tmp_path, "{file: events.ndjson}")
    with pytest.raises(CommandFailed), told(pipeline, dict):
        raise CommandFailed("It went wrong.")
    failed = json.loads((tmp_path / "events.ndjson").read_text().splitlines()[-1])
    assert failed["eventType"] == "FAIL"
    assert failed["run"]["facets"]["errorMessage"]["message"] == "It went wrong."


def test_a_receiver_that_is_away_is_told_of_once_and_ends_nothing(tmp_path: Path) -> None:
    said = io.StringIO()
    with told(declared(tmp_path, "{url: 'http://127.0.0.1:1'}"), dict, out=said):
        pass
    assert said.getvalue().count("\n") == 1
    assert "lineage: events are not delivered: [Errno 111] Connection refused" in said.getvalue()
    with pytest.raises(CommandFailed, match="needs a 'url' or a 'file'"):
        declared(tmp_path, "{namespace: x}")
    assert "secret" not in repr(declared(tmp_path, "{url: 'http://x', api_key: secret}"))
