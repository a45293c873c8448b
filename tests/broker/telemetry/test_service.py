"""What clients push: when they may, how much, and what comes of it. With requests as they are on the wire."""

from __future__ import annotations

import asyncio
import gzip
import struct
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from shared_broker import SharedBroker

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import ANONYMOUS, Principal
from tidemark.broker.telemetry import service
from tidemark.broker.telemetry.forwarding import with_client
from tidemark.broker.telemetry.otlp import POINTS_MAX, InvalidTelemetry, points
from tidemark.broker.telemetry.subscriptions import Client
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest
from tidemark.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemark.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidemark.protocol.messages.push_telemetry import PushTelemetryRequest

CLIENT_METRICS = 16
NONE, GZIP, ZSTD = 0, 1, 4


def field(number: int, data: bytes) -> bytes:
    size, out = len(data), bytearray([number << 3 | 2])
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(out) + bytes([size]) + data


def attribute(key: str, value: str) -> bytes:
    return field(7, field(1, key.encode()) + field(2, field(1, value.encode())))


def metric(name: str, *values: float, kind: int = 5, more: bytes = b"", delta: bool = False) -> bytes:
    data = b"".join(field(1, b"\x21" + struct.pack("<d", value) + more) for value in values)
    return field(2, field(1, name.encode()) + field(kind, data + (b"\x10\x01" if delta else b"")))


def pushed(*metrics: bytes) -> bytes:
    return field(1, field(2, b"".join(metrics)))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("telemetry")
    settings = {"http_listeners": "HTTP://127.0.0.1:0", "telemetry_max_bytes": 10_000}
    with SharedBroker(path, **settings) as broker:
        yield broker


@pytest.fixture
async def client(broker: Any, connect: Any) -> Any:
    return await connect(broker)


async def subscribe(client: Any, name: str, **values: str | None) -> Any:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    [answer] = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return answer


async def push(client: Any, got: Any, data: bytes, *, codec: int = NONE, **fields: Any) -> int:
    known = {"client_instance_id": got.client_instance_id, "subscription_id": got.subscription_id} | fields
    answer = await client.ask(PushTelemetryRequest(compression_type=codec, metrics=data, **known))
    return int(answer.error_code)


async def get(client: Any, instance_id: bytes = bytes(16)) -> Any:
    return await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


async def offered(client: Any) -> set[int]:
    return {each.api_key for each in (await client.ask(ApiVersionsRequest(), 2)).api_keys}


async def test_nobody_is_asked_before_there_is_a_subscription_and_then_for_what_all_of_them_want(client: Any) -> None:
    assert not {71, 72} & await offered(client)
    assert (await subscribe(client, "a", metrics="org.b,org.a", interval_ms="60000")).error_code == 0
    other = await subscribe(client, "b", metrics="org.c", interval_ms="90000", match="client_id=[^x].*")
    assert other.error_code == 0
    assert (await subscribe(client, "c", metrics="org.d", match="client_software_name=none")).error_code == 0
    assert {71, 72} <= await offered(client)
    got = await get(client)
    assert (got.error_code, got.push_interval_ms, got.telemetry_max_bytes) == (0, 60_000, 10_000)
    assert got.requested_metrics == ["org.a", "org.b", "org.c"]
    assert got.accepted_compression_types == [4, 3, 1, 2]
    assert got.client_instance_id != bytes(16)
    assert (await get(client, got.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await subscribe(client, "b", metrics="*")
    assert (await get(client)).requested_metrics == ["*"]
    described = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="b", configuration_keys=None)
    [shown] = (await client.ask(DescribeConfigsRequest(resources=[described]))).results
    assert {each.name: (each.value, each.config_source) for each in shown.configs} == {
        "interval.ms": ("90000", 7),
        "match": ("client_id=[^x].*", 7),
        "metrics": ("*", 7),
    }


@pytest.mark.parametrize(
    "values",
    [
        {"interval_ms": "99"},
        {"interval_ms": "often"},
        {"match": "client_id=["},
        {"match": "nobody=x"},
        {"match": "client_id"},
        {"no_such": "1"},
    ],
)
async def test_a_subscription_that_makes_no_sense_is_refused(client: Any, values: Any) -> None:
    assert (await subscribe(client, "wrong", **values)).error_code == ErrorCode.INVALID_CONFIG
    assert (await subscribe(client, "", metrics="*")).error_code == ErrorCode.INVALID_REQUEST


async def test_what_is_pushed_is_told_under_its_own_name_until_the_client_leaves(client: Any, broker: Any) -> None:
    await subscribe(client, "a", metrics="*", interval_ms="100")
    got = await get(client)
    hostile = 'x"\n} 1\nfaked 1'
    data = pushed(
        metric("org.apache.kafka.producer.some.rate", 1.5, more=attribute("node.id", hostile)),
        metric("org.apache.kafka.producer.some.total", 7, kind=7, delta=True),
        metric("bad\nname{}", 3.0),
        metric("not.finite", float("nan")),
    )
    assert await push(client, got, data) == 0
    assert await push(client, got, data) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    text = scraped(broker)
    assert 'node_id="x\\"\\n} 1\\nfaked 1"} 1.5' in text
    assert "\nfaked" not in text
    assert "kafka_client_bad_name{" in text
    assert "not_finite" not in text
    [total] = [line for line in text.splitlines() if line.startswith("kafka_client_producer_some_total{")]
    assert total.endswith(" 7.0")
    assert await push(client, got, data, terminating=True) == 0
    assert "kafka_client_producer_some_total" not in scraped(broker)
    assert await push(client, got, data, terminating=True) == ErrorCode.INVALID_REQUEST


def scraped(broker: Any) -> str:
    port = broker.node.http_endpoints["HTTP"][1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


BOMB = bytes(cramjam.zstd.compress(bytes(50_000_000)))


@pytest.mark.parametrize(
    ("codec", "data", "code"),
    [
        (9, b"", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (NONE, bytes(10_001), ErrorCode.TELEMETRY_TOO_LARGE),
        (ZSTD, BOMB, ErrorCode.TELEMETRY_TOO_LARGE),
        (ZSTD, b"no zstd", ErrorCode.INVALID_RECORD),
        (NONE, b"\x0a\xff\xff\xff\xff\x0f", ErrorCode.INVALID_RECORD),
        (GZIP, gzip.compress(pushed(metric("a", 1.0)), mtime=0), ErrorCode.NONE),
        (NONE, b"", ErrorCode.NONE),
    ],
)
async def test_a_push_is_refused_for_what_is_wrong_with_it(client: Any, codec: int, data: bytes, code: int) -> None:
    await subscribe(client, "a", metrics="*", interval_ms="100")
    assert len(BOMB) < 10_000
    assert await push(client, await get(client), data, codec=codec) == code


async def test_a_push_for_another_subscription_or_by_nobody_is_refused(client: Any) -> None:
    await subscribe(client, "a", metrics="*", interval_ms="100")
    got = await get(client)
    wrong = await push(client, got, b"", subscription_id=got.subscription_id + 1)
    assert wrong == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await get(client, got.client_instance_id)).error_code == 0  # at once: it has to learn what is wanted
    assert await push(client, got, b"", client_instance_id=bytes(16)) == ErrorCode.INVALID_REQUEST


def test_points_are_bounded_and_bytes_that_are_cut_anywhere_raise_one_error_only() -> None:
    whole = pushed(metric("a", 1.0, more=attribute("k", "v" * 500)), metric("b", 2.0, kind=7, delta=True))
    assert [(each.name, each.value, each.is_delta) for each in points(memoryview(whole))] == [
        ("a", 1.0, False),
        ("b", 2.0, True),
    ]
    for end in range(len(whole)):
        try:
            points(memoryview(whole)[:end])
        except InvalidTelemetry:
            continue
    with pytest.raises(InvalidTelemetry):
        points(memoryview(pushed(metric("a", *[1.0] * (POINTS_MAX + 1)))))


def test_what_is_forwarded_says_which_client_it_is_of() -> None:
    client = Client("id", "app\ud800", "soft", "1", "127.0.0.1", "5")
    sent = with_client(client, pushed(metric("a", 1.0)))
    assert [each.name for each in points(memoryview(sent))] == ["a"]
    assert b"client_instance_id" in sent
    assert b"app?" in sent


def telemetry_of(*, clock: Any = lambda: 1000.0, series_max: int = 100) -> service.Telemetry:
    current = SimpleNamespace(telemetry_max_bytes=10_000, tidemark_telemetry_series_max=series_max)
    store = SimpleNamespace(image=SimpleNamespace(configs={}))
    return service.Telemetry(store, SimpleNamespace(current=current), clock=clock, forward=None)  # type: ignore[arg-type]


def call_from(host: str, user: Principal = ANONYMOUS) -> Any:
    connection = SimpleNamespace(client_software="", peer=f"{host}:1", host=host, principal=user)
    return SimpleNamespace(connection=connection, client_id="c")


async def push_names(telemetry: service.Telemetry, instance_id: bytes, call: Any, *names: str) -> None:
    """A client's whole way: it asks, and pushes one figure under each name."""
    _, wanted = telemetry.subscribe(instance_id, call)
    data = pushed(*(metric(name, 1.0) for name in names))
    await telemetry.push(
        instance_id, call, subscription_id=wanted.subscription_id, codec=NONE, data=data, terminating=False
    )


def told(telemetry: service.Telemetry) -> dict[str, int]:
    """How many series of each address are told."""
    found: Counter[str] = Counter()
    for instance in telemetry.told():
        found[instance.client.client_source_address] += len(instance.series)
    return dict(found)


async def test_a_client_that_is_forgotten_while_it_pushes_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "INSTANCES_MAX", 1)
    telemetry, call = telemetry_of(), call_from("127.0.0.1")
    first, wanted = telemetry.subscribe(b"1" * 16, call)
    data = gzip.compress(pushed(metric("m", 1.0)))
    pushing = asyncio.ensure_future(
        telemetry.push(first, call, subscription_id=wanted.subscription_id, codec=GZIP, data=data, terminating=False)
    )
    await asyncio.sleep(0)  # a thread reads it
    telemetry.subscribe(b"2" * 16, call)
    await pushing
    assert (telemetry.instance_count, telemetry._series_count) == (1, 0)


@pytest.mark.parametrize("user", [ANONYMOUS, Principal("User", "flood")], ids=["one address", "one user"])
async def test_a_flood_of_new_ids_takes_nothing_from_the_clients_of_others(
    monkeypatch: pytest.MonkeyPatch, user: Principal
) -> None:
    monkeypatch.setattr(service, "INSTANCES_MAX", 10)
    telemetry = telemetry_of()
    for number in range(1, 5):
        await push_names(telemetry, bytes([number] * 16), call_from(f"10.0.0.{number}"), "a", "b")
    for number in range(100, 200):
        host = "10.0.1.1" if user is ANONYMOUS else f"10.0.1.{number}"
        await push_names(telemetry, bytes([number] * 16), call_from(host, user), "a")
    found = told(telemetry)
    assert telemetry.instance_count == 10
    assert [found.get(f"10.0.0.{number}") for number in range(1, 5)] == [2, 2, 2, 2]
    await push_names(telemetry, b"n" * 16, call_from("10.0.2.1"), "a")  # and there is room for who comes later
    assert told(telemetry)["10.0.2.1"] == 1


async def test_a_flood_of_series_leaves_room_for_those_of_others() -> None:
    telemetry = telemetry_of(series_max=100)
    for number in range(20):
        names = [f"m{each}" for each in range(20)]
        await push_names(telemetry, bytes([100 + number] * 16), call_from("10.0.1.1"), *names)
    assert told(telemetry) == {"10.0.1.1": 100}
    await push_names(telemetry, b"1" * 16, call_from("10.0.0.1"), "a", "b", "c")
    assert told(telemetry)["10.0.0.1"] == 3
    assert sum(told(telemetry).values()) == telemetry._series_count <= 100


async def test_where_everybody_has_one_client_those_that_live_stay_and_those_that_are_gone_make_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "INSTANCES_MAX", 3)
    now = 1000.0
    telemetry = telemetry_of(clock=lambda: now)
    for number in range(3):
        telemetry.subscribe(bytes([number + 1] * 16), call_from(f"10.0.0.{number}"))
    with pytest.raises(Refused):
        telemetry.subscribe(b"n" * 16, call_from("10.0.1.1"))
    now += 2000
    telemetry.subscribe(b"n" * 16, call_from("10.0.1.1"))
    assert telemetry.instance_count == 3
