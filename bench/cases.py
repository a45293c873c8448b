"""The loads that run against brokers which are up and warm. A case prepares a broker once and then runs rounds."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from bench.brokers import Running, write_dirty_pages
from bench.loaders.process import Load, run_together
from bench.topics import count_records, topic

Round = Callable[[], dict[str, float]]
Case = Callable[[Running, "Scale"], AbstractContextManager[Round]]

PARTITIONS = 6
LOADERS = 2
SMALL_PARTITIONS = 64
SMALL_PRODUCERS = 4
MIB = 1 << 20
# librdkafka's own pre-fetch limits would make it wait a second (fetch.queue.backoff.ms) whenever it runs ahead; and
# the long poll at the end of one pass through the data would hold up the next.
FETCH = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 262_144,
    "fetch.queue.backoff.ms": 0,
    "fetch.wait.max.ms": 10,
}
AT_ONCE = {"linger.ms": 0, "socket.nagle.disable": "true"}
# One record per request, and few enough waiting that the end of a round is not the emptying of a long queue.
SINGLE = {**AT_ONCE, "batch.num.messages": 1, "queue.buffering.max.messages": 1_000}

_serial = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of a load one round is. Bytes bound what lies on the disk at a time, per broker."""

    bytes_1k: int = 1_000_000_000
    bytes_100: int = 500_000_000
    passes_1k: int = 3
    passes_100: int = 2
    small_s: float = 8.0
    latency_records: int = 4_000
    group_sizes: tuple[int, ...] = (1, 10, 100)
    commit_s: float = 2.0
    idle_groups: int = 1_000
    idle_groups_s: float = 6.0
    txn_s: float = 4.0
    txn_commits: int = 1_000
    txn_bytes: int = 500_000_000
    clicks: int = 200_000
    changes: int = 200_000
    click_probes: int = 10
    steady_s: float = 10.0
    cold_bytes: int = 4_000_000_000
    disk_s: float = 60.0
    create_topics: int = 1_000
    missed_bytes: int = 1_000_000_000
    sustained_bytes: int = 3_000_000_000
    java_jars: Path | None = None

    def bytes_of(self, size: int) -> int:
        return self.bytes_1k if size >= 1000 else self.bytes_100

    def passes_of(self, size: int) -> int:
        return self.passes_1k if size >= 1000 else self.passes_100


QUICK = Scale(
    bytes_1k=200_000_000,
    bytes_100=100_000_000,
    passes_1k=1,
    passes_100=1,
    small_s=2.0,
    latency_records=1_000,
    group_sizes=(1, 10),
    commit_s=1.0,
    idle_groups=50,
    idle_groups_s=3.0,
    txn_s=1.5,
    txn_commits=200,
    txn_bytes=100_000_000,
    clicks=20_000,
    changes=20_000,
    click_probes=3,
    steady_s=3.0,
    cold_bytes=400_000_000,
    disk_s=20.0,
    create_topics=50,
    missed_bytes=100_000_000,
    sustained_bytes=400_000_000,
)


class Measured(Protocol):
    def cpu_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run of loads: what they report, the time they took together and the CPU the broker used meanwhile."""

    reports: list[dict[str, Any]]
    wall_s: float
    cpu_s: float
    loader_cpu_s: float
    other_cpu_s: float

    @property
    def cores(self) -> dict[str, float]:
        """Who else used the machine: the loaders, and what is neither loader nor broker (a disturbance)."""
        return {"loader": self.loader_cpu_s / self.wall_s, "other": self.other_cpu_s / self.wall_s}

    @property
    def records(self) -> int:
        return sum(int(report["records"]) for report in self.reports)


def sample(broker: Measured, loads: list[Load], *, after: Callable[[], None] = lambda: None) -> Sample:
    """`after` is called when the load is over but its processes, and their connections, are still there."""
    edges: list[tuple[float, float, float]] = []

    def edge() -> None:
        edges.append((time.monotonic(), broker.cpu_s(), machine_cpu_s()))

    def end() -> None:
        edge()
        after()

    reports = run_together(loads, before=edge, after=end)
    wall_s, cpu_s, machine_s = (ended - begun for begun, ended in zip(*edges, strict=True))
    loader_cpu_s = sum(float(report["loader_cpu_s"]) for report in reports)
    return Sample(
        reports=reports,
        wall_s=wall_s,
        cpu_s=cpu_s,
        loader_cpu_s=loader_cpu_s,
        other_cpu_s=max(0.0, machine_s - cpu_s - loader_cpu_s),
    )


def machine_cpu_s() -> float:
    """CPU seconds that all processes, and other guests of the same host, have used so far."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.steal)


def fresh_name(kind: str) -> str:
    return f"bench-{kind}-{next(_serial)}"


def produce_loads(broker: Running, name: str, scale: Scale, *, size: int) -> list[Load]:
    common = {"topic": name, "size": size, "client": broker.client}
    records = scale.bytes_of(size) // size
    if scale.java_jars is not None:
        return [Load(module="produce_java", parameters={**common, "records": records, "jars": str(scale.java_jars)})]
    share = {**common, "partitions": PARTITIONS, "batch": 1000, "records": records // LOADERS}
    firsts = range(0, PARTITIONS, PARTITIONS // LOADERS)
    return [Load(module="produce", parameters={**share, "first_partition": first}) for first in firsts]


def check_delivered(broker: Running, name: str, expected: int, *, partitions: int) -> None:
    held = count_records(broker, name, partitions=partitions)
    if held != expected:
        raise RuntimeError(f"{broker.name} holds {held} of {expected} records: the load was not delivered")


def _throughput(case: str, taken: Sample, *, size: int) -> dict[str, float]:
    payload = taken.records * size
    return {
        f"{case}.rate": payload / taken.wall_s / 1e6,
        f"{case}.cpu": taken.cpu_s / (payload / 1e9),
        **{f"{case}.{who}_cores": cores for who, cores in taken.cores.items()},
    }


@contextmanager
def _produce(broker: Running, scale: Scale, *, case: str, size: int) -> Iterator[Round]:
    def one_round() -> dict[str, float]:
        with topic(broker, fresh_name(case), partitions=PARTITIONS) as name:
            write_dirty_pages()
            taken = sample(broker, produce_loads(broker, name, scale, size=size))
            check_delivered(broker, name, taken.records, partitions=PARTITIONS)
        return _throughput(case, taken, size=size)

    yield one_round


@contextmanager
def _consume(broker: Running, scale: Scale, *, case: str, size: int) -> Iterator[Round]:
    with topic(broker, fresh_name(case), partitions=PARTITIONS) as name:
        sample(broker, produce_loads(broker, name, scale, size=size))
        write_dirty_pages()
        client = {**broker.client, **FETCH}
        common = {"topic": name, "client": client, "passes": scale.passes_of(size)}
        shares = [list(range(PARTITIONS))[number::LOADERS] for number in range(LOADERS)]
        loads = [Load(module="consume", parameters={**common, "partitions": share}) for share in shares]
        yield lambda: _throughput(case, sample(broker, loads), size=size)


@contextmanager
def small(broker: Running, scale: Scale, *, case: str = "small") -> Iterator[Round]:
    with topic(broker, fresh_name(case), partitions=SMALL_PARTITIONS) as name:
        client = {**broker.client, **SINGLE}
        common = {"topic": name, "client": client, "size": 100, "batch": 1, "partitions": SMALL_PARTITIONS}
        firsts = range(0, SMALL_PARTITIONS, SMALL_PARTITIONS // SMALL_PRODUCERS)
        share = {**common, "seconds": scale.small_s}
        loads = [Load(module="produce", parameters={**share, "first_partition": first}) for first in firsts]
        delivered = 0

        def one_round() -> dict[str, float]:
            nonlocal delivered
            taken = sample(broker, loads)
            delivered += taken.records
            check_delivered(broker, name, delivered, partitions=SMALL_PARTITIONS)
            return {
                f"{case}.rate": taken.records / taken.wall_s,
                f"{case}.per_cpu": taken.records / taken.cpu_s,
                f"{case}.cpu_us": 1e6 * taken.cpu_s / taken.records,
                **{f"{case}.{who}_cores": cores for who, cores in taken.cores.items()},
            }

        yield one_round


@contextmanager
def _latency(broker: Running, scale: Scale, *, case: str = "latency") -> Iterator[Round]:
    with topic(broker, fresh_name(case), partitions=1) as name:
        client = {**broker.client, **AT_ONCE}
        consumer = {**broker.client, "socket.nagle.disable": "true"}
        parameters = {"topic": name, "producer": client, "consumer": consumer, "size": 100, "warm_up": 300}
        load = Load(module="latency", parameters={**parameters, "records": scale.latency_records})

        def one_round() -> dict[str, float]:
            taken = sample(broker, [load])
            report = taken.reports[0]
            cores = {f"{case}.{who}_cores": cores for who, cores in taken.cores.items()}
            return {f"{case}.p50": report["p50_ms"], f"{case}.p99": report["p99_ms"], **cores}

        yield one_round


@contextmanager
def _memory(broker: Running, scale: Scale) -> Iterator[Round]:
    """Last of all, so that in a whole run the memory is that of a broker which has done everything else."""
    with _produce(broker, scale, case="memory", size=1000) as load:

        def one_round() -> dict[str, float]:
            load()
            return {"memory.rss": broker.rss_bytes() / MIB}

        yield one_round


@contextmanager
def _handshakes(broker: Running, scale: Scale, *, case: str) -> Iterator[Round]:
    """New connections as fast as two clients can open them: a full handshake, and one answer, each."""
    common = {"address": ("127.0.0.1", broker.launch.tls_port), "ca": broker.client["ssl.ca.location"]}
    loads = [Load(module="handshakes", parameters={**common, "seconds": scale.small_s}) for _ in range(LOADERS)]

    def one_round() -> dict[str, float]:
        taken = sample(broker, loads)
        return {
            f"{case}.rate": taken.records / taken.wall_s,
            f"{case}.cpu_us": 1e6 * taken.cpu_s / taken.records,
            **{f"{case}.{who}_cores": cores for who, cores in taken.cores.items()},
        }

    yield one_round


def _over_tls(case: Case) -> Case:
    @contextmanager
    def secured(broker: Running, scale: Scale) -> Iterator[Round]:
        with broker.over_tls(), case(broker, scale) as one_round:

            def one_secured_round() -> dict[str, float]:
                with broker.over_tls():
                    return one_round()

            yield one_secured_round

    return secured


TLS_CASES: dict[str, Case] = {
    "tls-produce-1k": _over_tls(lambda broker, scale: _produce(broker, scale, case="tls-produce-1k", size=1000)),
    "tls-consume-1k": _over_tls(lambda broker, scale: _consume(broker, scale, case="tls-consume-1k", size=1000)),
    "tls-small": _over_tls(lambda broker, scale: small(broker, scale, case="tls-small")),
    "tls-latency": _over_tls(lambda broker, scale: _latency(broker, scale, case="tls-latency")),
    "tls-handshakes": _over_tls(lambda broker, scale: _handshakes(broker, scale, case="tls-handshakes")),
}

CASES: dict[str, Case] = {
    "produce-1k": lambda broker, scale: _produce(broker, scale, case="produce-1k", size=1000),
    "produce-100": lambda broker, scale: _produce(broker, scale, case="produce-100", size=100),
    "consume-1k": lambda broker, scale: _consume(broker, scale, case="consume-1k", size=1000),
    "consume-100": lambda broker, scale: _consume(broker, scale, case="consume-100", size=100),
    "small": small,
    "latency": _latency,
    "memory": _memory,
}
