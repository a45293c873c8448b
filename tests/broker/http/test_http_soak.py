"""Every route, again and again, with ever new names: what HTTP clients can make the broker remember has a bound."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from tests.broker.http.conftest import RawClient
from tests.broker.server.test_soak import GROWTH_MAX, REQUESTS, growth, settled, used_now

SETTINGS: Final = {
    "offsets_topic_num_partitions": "1",
    "auto_create_topics_enable": "false",
    "group_consumer_min_heartbeat_interval_ms": "1",
    "group_consumer_heartbeat_interval_ms": "20",
    "group_consumer_min_session_timeout_ms": "1",
    "group_consumer_session_timeout_ms": "100",
    "offsets_retention_check_interval_ms": "100",
    "producer_id_expiration_ms": "100",
    "producer_id_expiration_check_interval_ms": "100",
}
_numbers = count(1_000_000)
Asked = tuple[str, str, object, str]  # method, path, body, a header line


def asks(path: str, body: object = None, *, method: str = "GET", header: str = "X-Nothing: 1") -> Callable[[], Asked]:
    """`#` becomes a number that was not used before."""

    def make() -> Asked:
        number = str(next(_numbers))
        told = None if body is None else json.loads(json.dumps(body).replace("#", number))
        return method.replace("#", number), path.replace("#", number), told, header.replace("#", number)

    return make


# With what is kept for a time; the others keep nothing at all.
KEPT: Final = {
    "a request that may be repeated": asks(
        "/topics/t/records", {"value": 1}, method="POST", header="Idempotency-Key: key-#"
    ),
    "a consumer that is not used": asks("/groups/g#/consumers", {"idle_ms": 1000}, method="POST"),
}
FORGOTTEN: Final = {
    "a path that leads nowhere": asks("/nowhere/#"),
    "a method that nobody knows": asks("/topics", method="DO#"),
    "a header": asks("/topics", header="X-Header-#: #"),
    "a topic that is not there": asks("/topics/t#"),
    "its records": asks("/topics/t#/partitions/0/records"),
    "its stream": asks("/topics/t#/stream"),
    "its settings": asks("/topics/t#/configs"),
    "a record for it": asks("/topics/t#/records", {"value": 1}, method="POST"),
    "partitions for it": asks("/topics/t#", {"partitions": 3}, method="PATCH"),
    "its end": asks("/topics/t#", method="DELETE"),
    "a topic that may not be": asks("/topics", {"name": "t/#"}, method="POST"),
    "a group that is not there": asks("/groups/g#"),
    "its offsets": asks("/groups/g#/offsets"),
    "its end, too": asks("/groups/g#", method="DELETE"),
    "a consumer that is not there": asks("/groups/g#/consumers/0-#/records"),
    "a broker that is not there": asks("/brokers/#/configs"),
    "a setting that is not there": asks("/brokers/0/configs", {"configs": {"s#": "1"}}, method="PATCH"),
    "a field that is not there": asks("/topics/t/records", {"f#": 1}, method="POST"),
    "metrics": asks("/metrics"),
    "the cluster": asks("/cluster"),
    "all groups": asks("/groups"),
    "the document": asks("/openapi.json"),
}


async def dialled(node: Any) -> RawClient:
    """Which the fixture would remember."""
    return RawClient(*await asyncio.open_connection(*node.http_endpoints["HTTP"]))


async def send_all(node: Any, make: Callable[[], Asked]) -> None:
    client = await dialled(node)
    for number in range(REQUESTS):
        method, path, body, header = make()
        data = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if data else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n{kind}Content-Length: {len(data)}\r\n\r\n"
        client.writer.write(head.encode() + data)
        try:
            await client.answer()
            is_over = number % 20 == 19
        except (asyncio.IncompleteReadError, ConnectionError):
            is_over = True
        if is_over:
            await client.close()
            client = await dialled(node)
    await client.close()


@pytest.mark.alone
async def test_nothing_that_http_clients_name_is_kept_for_ever(
    start_http: Any, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_http(**SETTINGS)
    kafka = await connect(node)
    await kafka.create("t")
    grown: dict[str, float] = {}
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        for name, make in {**FORGOTTEN, **KEPT}.items():
            in_use = settled if name in KEPT else used_now
            grown[name] = await growth(partial(send_all, node, make), in_use)
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    with capsys.disabled():
        for name, each in sorted(grown.items(), key=lambda item: -item[1])[:5]:
            print(f"{each:8.0f} bytes/request  {name}")
    assert {name: each for name, each in grown.items() if each > GROWTH_MAX} == {}
