"""What /livez and /readyz say of a node: alone, among others, and with something wrong."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.http.router import Router
from tidemark.broker.metadata.image import Image

ROOT = Path(__file__).parents[3]


async def test_a_node_that_serves_is_live_and_ready(start_http: Any, browse: Any) -> None:
    client = browse(await start_http())
    assert (await client.get("/livez")).json() == {"status": "live", "node_id": 0}
    answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["checks"] == {
        "metadata": "ok",
        "listeners": "ok",
        "lease": "ok",
        "logs": "ok",
        "log_dirs": "ok",
    }


async def test_a_node_that_has_not_applied_what_is_decided_or_is_fenced_is_not_ready(
    start_http: Any, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_http()
    client = browse(node)
    with monkeypatch.context() as behind:
        late = property(lambda store: store.driver.node.commit_index - 5)
        behind.setattr(type(node._store), "applied_index", late)
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["metadata"]) == (503, "5 metadata records are not applied yet")
    with monkeypatch.context() as fenced:
        fenced.setattr(Image, "is_active", lambda _image, _broker_id: False)
        answer = await client.get("/readyz")
    told = answer.json()["checks"]["metadata"]
    assert (answer.status_code, told) == (503, "this broker is not registered, or fenced")
    assert (await client.get("/readyz")).status_code == 200


async def test_a_node_without_one_of_its_disks_is_live_but_not_ready(start_http: Any, browse: Any) -> None:
    node = await start_http()
    node._replicas.table.offline_directories["/disks/2"] = "Input/output error"
    client = browse(node)
    assert (await client.get("/livez")).status_code == 200
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "not ready"
    assert answer.json()["checks"]["log_dirs"] == "/disks/2 is offline: Input/output error"


async def test_a_node_whose_lease_has_run_out_is_not_ready(start_http: Any, browse: Any) -> None:
    node = await start_http()
    node._replicas.table.lease_until = 0.0
    answer = await browse(node).get("/readyz")
    assert answer.status_code == 503
    assert "no lease" in answer.json()["checks"]["lease"]


async def test_a_node_that_has_found_no_controller_yet_holds_no_lease(start_http: Any, browse: Any) -> None:
    node = await start_http()
    node._http.stop_serving()
    raft = node._store.driver.node
    leader, raft.leader_id = raft.leader_id, None
    answer = await browse(node).get("/readyz")
    raft.leader_id = leader
    assert answer.status_code == 503
    assert "no controller" in answer.json()["checks"]["metadata"]
    assert "no lease" in answer.json()["checks"]["lease"]


def loaded_by_a_start(directory: Path, *, http: str) -> set[str]:
    """Modules, in a process of its own: others of this one have loaded everything."""
    code = """
        import asyncio, sys
        from tidemark.broker.config import load_config
        from tidemark.broker.node import Node

        async def main():
            settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1], "http.listeners": sys.argv[2]}
            node = Node(load_config(None, settings))
            await node.start()
            print(*sys.modules)
            await node.stop()

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(directory), http]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, cwd=ROOT)
    ours = ("tidemark.broker.http", "tidemark.broker.metrics")
    return {each for each in done.stdout.split() if each.startswith(ours)}


def test_without_an_http_listener_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    assert loaded_by_a_start(tmp_path / "without", http="") == set()
    assert "tidemark.broker.http.runtime" in loaded_by_a_start(tmp_path / "with", http="HTTP://127.0.0.1:0")


async def test_a_node_that_still_opens_its_logs_says_how_far_it_is(start_http: Any, browse: Any) -> None:
    node = await start_http()
    node._replicas.table.opening_progress = lambda: (350, 2000)
    client = browse(node)
    assert (await client.get("/readyz")).status_code == 200  # it serves: these are of new topics
    node._http.stop_serving()
    assert (await client.get("/readyz")).json()["checks"]["logs"] == "350 of 2000 logs are open"


async def test_a_node_that_joins_its_cluster_does_not_tell_topics_as_missing(start_http: Any, browse: Any) -> None:
    """Its listener is open already, what answers for topics is not there yet: 404 would be final for clients."""
    node = await start_http()
    node._http.stop_serving()
    node._http._application.router = Router()
    answer = await browse(node).post("/topics/t/records", json={"value": 1})
    assert (answer.status_code, answer.json()["error"]) == (503, "BROKER_NOT_AVAILABLE")
    assert answer.headers["retry-after"] == "1"
