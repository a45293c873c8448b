"""How steadily one producer is answered while others work the broker hard: alone, beside a cold read, a full disk, and
ten thousand new partitions; and how fast large batches are taken for longer than the page cache flatters.

The producer sends 1,000 records of 1 KB a second, acks=all, without linger (`loaders/steady.py`).
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import Running, write_dirty_pages
from bench.cases import FETCH, LOADERS, PARTITIONS, Case, Round, Sample, Scale, check_delivered, fresh_name, sample
from bench.loaders.process import Load, Loader
from bench.page_cache import fill_page_cache
from bench.topics import topic, wait_for_files_to_go

RATE = 1_000.0
SIZE = 1_000
RECORDS_PER_BATCH = 1_000  # of 1 KB: a batch of 1 MB
WARM_UP_S = 1.0
LEAD_S = 0.5  # the producer runs so long before the disturbance begins
LONGEST_S = 300.0
TIMEOUT_S = 120.0
TOGETHER = 100  # topics in one request: Apache Kafka takes at most 10,000 records for one wish
PARTITIONS_EACH = 10
SPARE_DISK_BYTES = 12_000_000_000
# Old segments go while new ones come, so that a minute at full speed does not fill the disk; but only when they have
# long been written out: what is deleted while it is dirty never reaches the disk.
_BOUNDED = {"segment.bytes": str(256 << 20), "retention.bytes": str(1536 << 20)}


def steady_beside(address: tuple[str, int], name: str, disturb: Callable[[], object]) -> dict[str, Any]:
    """The producer's report of the time that the disturbance took."""
    parameters = {
        "address": address, "topic": name, "size": SIZE, "rate": RATE, "warm_up_s": WARM_UP_S, "seconds_max": LONGEST_S,
    }  # fmt: skip
    loader = Loader(Load(module="steady", parameters=parameters))
    try:
        loader.wait_ready()
        loader.go()
        time.sleep(LEAD_S)
        disturb()
        loader.stop()
        return loader.result()
    finally:
        loader.close()


def latencies(case: str, report: dict[str, Any]) -> dict[str, float]:
    """`late` is the loader's own lateness: where it is no smaller than the figures, they are the machine's. So is what
    was stolen (in processors); `calm` is of the records in whose time nothing was."""
    told = {f"{case}.{name}": report[f"{name}_ms"] for name in ("p50", "p99", "p999", "max", "late")}
    told |= {f"{case}.{name}": report[f"{name}_share"] for name in ("calm", "stolen")}
    calm = {f"{case}.{name}": report[f"{name}_ms"] for name in ("calm_p99", "calm_p999") if f"{name}_ms" in report}
    return told | calm


def stream_loads(addresses: list[tuple[str, int]], name: str, *, acks: int, **how_long: float) -> list[Load]:
    """One loader for each address, each with its share of the partitions."""
    common = {"topic": name, "size": SIZE, "records_per_batch": RECORDS_PER_BATCH, "acks": acks, **how_long}
    return [
        Load(
            module="stream",
            parameters={**common, "address": address, "partitions": list(range(PARTITIONS))[at :: len(addresses)]},
        )
        for at, address in enumerate(addresses)
    ]


def batches_each(total_bytes: int) -> int:
    return total_bytes // (SIZE * RECORDS_PER_BATCH) // LOADERS


@contextmanager
def _alone(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("steady"), partitions=1) as name:
        write_dirty_pages()
        yield lambda: latencies("steady-alone", steady_beside(broker.address, name, lambda: time.sleep(scale.steady_s)))


@contextmanager
def _cold(broker: Running, scale: Scale) -> Iterator[Round]:
    size = _cold_bytes(broker.launch.directory, scale)
    with (
        topic(broker, fresh_name("steady-cold"), partitions=PARTITIONS) as cold,
        topic(broker, fresh_name("steady"), partitions=1) as name,
    ):
        addresses = [broker.address] * LOADERS
        sample(broker, stream_loads(addresses, cold, acks=1, batches=batches_each(size)))
        client = {"bootstrap.servers": broker.bootstrap, **FETCH}
        parameters = {"topic": cold, "client": client, "partitions": list(range(PARTITIONS)), "passes": 1}
        read = [Load(module="consume", parameters=parameters)]

        def one_round() -> dict[str, float]:
            write_dirty_pages()
            drop_cached(broker.data, cold)
            taken: list[Sample] = []
            report = steady_beside(broker.address, name, lambda: taken.append(sample(broker, read)))
            rate = taken[0].records * SIZE / taken[0].wall_s / 1e6
            return {**latencies("steady-cold", report), "steady-cold.rate": rate}

        yield one_round


def _cold_bytes(directory: Path, scale: Scale) -> int:
    """Half of it where both brokers' data would leave the disk nearly full."""
    fits = shutil.disk_usage(directory).free > 2 * scale.cold_bytes + SPARE_DISK_BYTES
    return scale.cold_bytes if fits else scale.cold_bytes // 2


def drop_cached(data: Path, name: str) -> None:
    """Takes the topic's files out of the page cache. What is dirty stays there, so it is written out first."""
    for path in data.glob(f"{name}-*/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@contextmanager
def _disk(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("steady"), partitions=1) as name:

        def one_round() -> dict[str, float]:
            with topic(broker, fresh_name("steady-disk"), partitions=PARTITIONS, config=_BOUNDED) as filled:
                write_dirty_pages()
                fill_page_cache(broker.launch.directory.parent)
                loads = stream_loads([broker.address] * LOADERS, filled, acks=1, seconds=scale.disk_s)
                taken: list[Sample] = []
                report = steady_beside(broker.address, name, lambda: taken.append(sample(broker, loads)))
            rate = taken[0].records * SIZE / taken[0].wall_s / 1e6
            return {**latencies("steady-disk", report), "steady-disk.rate": rate}

        yield one_round


@contextmanager
def _create(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("steady"), partitions=1) as name:

        def one_round() -> dict[str, float]:
            prefix = fresh_name("steady-create")
            names = [f"{prefix}-{number}" for number in range(scale.create_topics)]
            write_dirty_pages()
            taken_s: list[float] = []
            report = steady_beside(broker.address, name, lambda: taken_s.append(_create_all(broker, names)))
            _delete_all(broker, names)
            wait_for_files_to_go(broker.data, prefix)
            return {**latencies("steady-create", report), "steady-create.time": taken_s[0]}

        yield one_round


def _create_all(broker: Running, names: list[str]) -> float:
    """The seconds until every partition is led: its directory is there, which costs the broker no answer."""
    begun = time.monotonic()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for first in range(0, len(names), TOGETHER):
        wanted = [NewTopic(name, PARTITIONS_EACH, 1) for name in names[first : first + TOGETHER]]
        for done in admin.create_topics(wanted, request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S).values():
            done.result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    prefix = names[0].rpartition("-")[0] + "-"
    while sum(entry.startswith(prefix) for entry in os.listdir(broker.data)) < len(names) * PARTITIONS_EACH:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{broker.name} has not made all partitions within {TIMEOUT_S:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - begun


def _delete_all(broker: Running, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for first in range(0, len(names), TOGETHER):
        asked = admin.delete_topics(names[first : first + TOGETHER], operation_timeout=TIMEOUT_S)
        for done in asked.values():
            done.result(TIMEOUT_S)


@contextmanager
def _sustained(broker: Running, scale: Scale) -> Iterator[Round]:
    def one_round() -> dict[str, float]:
        with topic(broker, fresh_name("sustained"), partitions=PARTITIONS) as name:
            write_dirty_pages()
            fill_page_cache(broker.launch.directory.parent)
            loads = stream_loads([broker.address] * LOADERS, name, acks=1, batches=batches_each(scale.sustained_bytes))
            taken = sample(broker, loads)
            check_delivered(broker, name, taken.records, partitions=PARTITIONS)
        payload = taken.records * SIZE
        return {
            "sustained.rate": payload / taken.wall_s / 1e6,
            "sustained.cpu": taken.cpu_s / (payload / 1e9),
            "sustained.per_cpu": payload / 1e6 / taken.cpu_s,
            **{f"sustained.{who}_cores": cores for who, cores in taken.cores.items()},
        }

    yield one_round


STEADY_CASES: dict[str, Case] = {
    "steady-alone": _alone,
    "steady-cold": _cold,
    "steady-disk": _disk,
    "steady-create": _create,
    "sustained": _sustained,
}
# The first round is kept: the warm-up ran the same cases, and a round of some takes a minute.
UNREHEARSED_STEADY = frozenset(STEADY_CASES) - {"sustained"}
