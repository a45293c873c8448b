"""What /livez and /readyz say of a node: alone, among others, and with something wrong."""

from typing import Any

from tidemark.broker.http.router import Router


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


async def test_without_an_http_listener_nothing_of_it_is_loaded(start_node: Any) -> None:
    node = await start_node()
    assert node.http_endpoints == {}


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
