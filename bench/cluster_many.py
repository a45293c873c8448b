"""Ten thousand partitions on three nodes: made in bulk, written to, described, led anew after a death, restarted.

One cluster at a time: each begins empty, and what one holds in memory is not in the other's way.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from bench import wire
from bench.cases import MIB, sample
from bench.cluster_brokers import NODES, Cluster, wait_until
from bench.loaders.process import Load
from bench.run import say

TIMEOUT_S = 300.0
PARTITIONS_EACH = 10
TOGETHER = 100  # topics in one request: Apache Kafka takes at most 10,000 records for one request
DEAD = NODES[0]
LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyScale:
    topics: int = 1_000
    idle_s: float = 10.0


QUICK = ManyScale(topics=50, idle_s=2.0)


def many(cluster: Cluster, scale: ManyScale) -> dict[str, float]:
    names = [f"bench-many-{number}" for number in range(scale.topics)]
    values: dict[str, float] = {}

    def note(figure: str, value: float) -> None:
        values[f"cluster-many.{figure}"] = value
        say(f"    {cluster.name:9} {figure} {value:,.3g}")

    begun = time.monotonic()
    _create(cluster, names)
    note("create", time.monotonic() - begun)
    sample(cluster, [_one_each(cluster, names)])
    note("usable", time.monotonic() - begun)
    _wait_for(cluster, len(names), _is_whole, node_id=NODES[-1])
    note("describe", statistics.median(_timed(lambda: _positions(cluster, NODES[-1])) for _ in range(LOOKS)))
    note("rss", cluster.rss_bytes() / MIB / len(NODES))
    before = cluster.cpu_s()
    time.sleep(scale.idle_s)
    note("idle", 1e3 * (cluster.cpu_s() - before) / scale.idle_s)

    begun = time.monotonic()
    cluster.kill(DEAD)
    _wait_for(cluster, len(names), lambda leader, _isr: leader not in (-1, DEAD), node_id=NODES[-1])
    note("failover", time.monotonic() - begun)
    begun = time.monotonic()
    cluster.start(DEAD)
    _wait_for(cluster, len(names), _is_whole, node_id=NODES[-1])
    note("return", time.monotonic() - begun)

    note("stop", _timed(lambda: cluster.stop(timeout_s=TIMEOUT_S)))
    begun = time.monotonic()
    cluster.start_all()
    for node_id in NODES:
        _wait_for(cluster, len(names), _is_whole, node_id=node_id)
    note("restart", time.monotonic() - begun)
    sample(cluster, [_one_each(cluster, names)])
    note("restart_usable", time.monotonic() - begun)
    return values


def _create(cluster: Cluster, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for first in range(0, len(names), TOGETHER):
        wanted = [
            NewTopic(name, num_partitions=PARTITIONS_EACH, replication_factor=len(NODES))
            for name in names[first : first + TOGETHER]
        ]
        for done in admin.create_topics(wanted, request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S).values():
            done.result(TIMEOUT_S)


def _one_each(cluster: Cluster, names: list[str]) -> Load:
    client = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    return Load(module="each", parameters={"topics": names, "partitions": PARTITIONS_EACH, "client": client})


def _is_whole(leader: int, isr: int) -> bool:
    return leader >= 0 and isr == len(NODES)


def _positions(cluster: Cluster, node_id: int) -> list[tuple[int, int]]:
    return wire.partitions(cluster.address(node_id), topics_like="bench-many-")


def _wait_for(cluster: Cluster, topics: int, wanted: Callable[[int, int], bool], *, node_id: int) -> None:
    """Until one node says so of every partition."""

    def all_of_them() -> bool:
        try:
            seen = _positions(cluster, node_id)
        except OSError:
            return False
        return len(seen) == topics * PARTITIONS_EACH and all(wanted(leader, isr) for leader, isr in seen)

    wait_until(all_of_them, timeout_s=TIMEOUT_S, what="what was to become of all partitions")


def _timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
