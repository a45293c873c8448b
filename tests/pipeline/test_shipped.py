"""The pipelines that ship, each with its generator, on a real broker: every output is what Python says it must be."""

from __future__ import annotations

import datetime
import io
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators import archive, clickstream, orders, quality, replay
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Committed = Callable[[str], list[GeneratedRecord]]
Produce = Callable[[Iterable[GeneratedRecord]], None]
MINUTE = datetime.timedelta(minutes=1)
SESSION_GAP = datetime.timedelta(seconds=30)


@pytest.fixture
def run_once(spark: SparkSession, bootstrap: str, shipped: Path, tmp_path: Path) -> Callable[..., Runner]:
    def run(name: str, *overrides: str) -> Runner:
        ours = [f"bootstrap={bootstrap}", f"checkpoint={tmp_path}/checkpoint", "metrics_port=0"]
        pipeline = load(shipped / f"{name}.yaml", overrides=[*ours, *overrides])
        out = io.StringIO()
        runner = Runner(spark, pipeline, once=True, out=out)
        runner.run()
        page = max((tmp_path / "checkpoint" / "reports").iterdir()).read_text()
        assert page.count("<svg") + page.count("0 all the time") == 5
        assert "<svg" in page
        return runner

    return run


def create(cluster: ClusterAdmin, topics: dict[str, int]) -> None:
    for topic, partitions in topics.items():
        cluster.create_topic(topic, partitions=partitions)


def test_clickstream(
    run_once: Callable[..., Runner], cluster: ClusterAdmin, produce: Produce, committed: Committed, spark: SparkSession,
    tmp_path: Path,
) -> None:  # fmt: skip
    create(cluster, clickstream.TOPICS)
    clicks = list(itertools.islice(clickstream.records(Random(1), rate=10), 3000))
    produce([*clicks, GeneratedRecord(topic="clicks", key=None, value=b"{no json")])
    run_once("clickstream", f"sinks.sessions-lake.path={tmp_path}/sessions")

    events = list({e["event_id"]: e for e in (json.loads(c.value or b"") for c in clicks)}.values())
    for event in events:
        event["at"] = datetime.datetime.fromisoformat(event["event_time"])
    watermark = max(event["at"] for event in events) - MINUTE
    counts = Counter((event["at"].replace(second=0, microsecond=0), event["page"]) for event in events)
    closed = {each: count for each, count in counts.items() if each[0] + MINUTE <= watermark}
    found = [json.loads(each.value or b"") for each in committed("clicks.per-minute")]
    assert {(datetime.datetime.fromisoformat(f["minute"]), f["page"]): f["clicks"] for f in found} == closed
    assert len(found) == len(closed) > 20

    rows = spark.read.parquet(f"{tmp_path}/sessions").collect()
    shown = Counter((r["user"], r["began"].timestamp(), r["ended"].timestamp(), r["clicks"]) for r in rows)
    assert shown == expected_sessions(events, watermark)
    [dead] = committed("clicks.dead")
    assert dead.value == b"{no json"
    assert dict(dead.headers)["dead-letter-reason"] == b"the value is not json of the schema"


def expected_sessions(events: list[dict], watermark: datetime.datetime) -> Counter:  # type: ignore[type-arg]
    by_user: dict[str, list[datetime.datetime]] = defaultdict(list)
    for event in events:
        by_user[event["user"]].append(event["at"])
    sessions: Counter[tuple[str, float, float, int]] = Counter()
    for user, times in by_user.items():
        times.sort()
        groups = [[times[0]]]
        for at in times[1:]:
            if at <= groups[-1][-1] + SESSION_GAP:  # sessions that touch are one
                groups[-1].append(at)
            else:
                groups.append([at])
        for group in groups:
            ended = group[-1] + SESSION_GAP
            if ended <= watermark:
                sessions[user, group[0].timestamp(), ended.timestamp(), len(group)] += 1
    return sessions


def test_orders(run_once: Callable[..., Runner], cluster: ClusterAdmin, produce: Produce, committed: Committed) -> None:
    create(cluster, orders.TOPICS)
    made = list(itertools.islice(orders.records(Random(1), rate=1), 300))
    produce(made)
    run_once("orders")
    customers = {m.key: json.loads(m.value) if m.value else None for m in made if m.topic == "customers"}
    wanted = {}
    for each in made:
        if each.topic == "orders":
            order = json.loads(each.value or b"")
            known = customers[order["customer_id"].encode()] or {}
            wanted[order["order_id"]] = {**order, **known}
    found = [json.loads(each.value or b"") for each in committed("orders.enriched")]
    assert len(found) == len(wanted)
    assert {each["order_id"]: each for each in found} == wanted


def test_archive(
    run_once: Callable[..., Runner], cluster: ClusterAdmin, produce: Produce, committed: Committed, spark: SparkSession,
    tmp_path: Path,
) -> None:  # fmt: skip
    create(cluster, archive.TOPICS)
    produce(itertools.islice(archive.records(Random(1), rate=1), 500))
    run_once("archive", f"sinks.lake.path={tmp_path}/lake")
    rows = spark.read.parquet(f"{tmp_path}/lake").collect()
    shown = Counter(
        (r["topic"], _bytes(r["key"]), _bytes(r["value"]), tuple((h.key, bytes(h.value)) for h in r["headers"] or ()))
        for r in rows
    )
    wanted = Counter((m.topic, m.key, m.value, m.headers) for topic in archive.TOPICS for m in committed(topic))
    assert shown == wanted
    assert sum(shown.values()) == 500
    assert len({(r["topic"], r["partition"], r["offset"]) for r in rows}) == 500
    assert len(list((tmp_path / "lake").glob("date=*/*.parquet"))) == 1


def test_replay(run_once: Callable[..., Runner], cluster: ClusterAdmin, produce: Produce, committed: Committed) -> None:
    create(cluster, {**replay.TOPICS, "replayed": 2})
    held = len(committed("recorded"))  # other tests use the same generator
    produce(itertools.islice(replay.records(Random(1), rate=1), 600))
    run_once("replay", "sinks.replayed.rate=100000", "sources.recorded.batch_records_max=250")
    # Same keys, same partitioner: the copy equals the original record for record, in order.
    original, copy = committed("recorded"), committed("replayed")
    assert [(m.key, m.value) for m in copy] == [(m.key, m.value) for m in original]
    assert len(copy) == held + 600


def test_quality(
    run_once: Callable[..., Runner], cluster: ClusterAdmin, produce: Produce, committed: Committed
) -> None:
    create(cluster, quality.TOPICS)
    made = list(itertools.islice(quality.records(Random(1), rate=1), 400))
    produce(made)
    runner = run_once("quality", "sinks.good-topic.writers=2")
    good, broken, malformed = set(), {}, set()
    for each in made:
        assert each.value is not None
        try:
            payment = json.loads(each.value)
        except ValueError:
            malformed.add(each.value)
            continue
        rules = {
            "amount is positive": payment["amount"] > 0,
            "currency is known": payment["currency"] in ("EUR", "USD"),
        }
        failed = "; ".join(name for name, holds in rules.items() if not holds)
        if failed:
            broken[each.value] = failed
        else:
            good.add(each.value)
    assert Counter(m.value for m in committed("payments.good")) == Counter(good)
    dead = {m.value: dict(m.headers)["dead-letter-reason"].decode() for m in committed("payments.dead")}
    assert {value: reason for value, reason in dead.items() if value in broken} == broken
    assert set(dead) - set(broken) == malformed
    assert runner.metrics.malformed['sink="good-topic",source="payments"'] == len(malformed)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
