"""What is measured on a broker just started, alone on the machine: start-up, idle memory, idle connections."""

import time

from bench.brokers import Launch, Running
from bench.cases import MIB, fresh_name, sample
from bench.loaders.connections import raise_file_limit
from bench.loaders.process import Load, Loader
from bench.topics import topic

FRESH_CASES = ("start", "idle", "connections")
CONNECTIONS = 5_000
SETTLE_S = 2.0


def fresh_round(launch: Launch, *, cases: set[str], idle_s: float, connections: int) -> dict[str, float]:
    """One life of a broker. The order matters: memory is read before anything was asked of it."""
    # The broker inherits the limit; 5,000 connections do not fit under the usual soft one of 1,024.
    raise_file_limit(connections * 2)
    figures: dict[str, float] = {}
    with Running(launch) as broker:
        if "start" in cases:
            figures |= {"start.ready": broker.start_s, "start.cpu": broker.start_cpu_s}
        if "idle" in cases:
            figures |= _idle(broker, seconds=idle_s)
        if "connections" in cases:
            figures |= _connections(broker, count=connections)
    return figures


def _idle(broker: Running, *, seconds: float) -> dict[str, float]:
    time.sleep(seconds / 2)
    before, half = broker.cpu_s(), seconds / 2
    time.sleep(half)
    return {"idle.rss": broker.rss_bytes() / MIB, "idle.cpu": 1e3 * (broker.cpu_s() - before) / half}


def _connections(broker: Running, *, count: int) -> dict[str, float]:
    with topic(broker, fresh_name("connections"), partitions=1) as name:
        client = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0}
        one = {"topic": name, "client": client, "size": 100, "partitions": 1, "batch": 1, "records": 1}
        sample(broker, [Load(module="produce", parameters=one)])
        time.sleep(SETTLE_S)
        before = broker.rss_bytes()
        holder = Loader(Load(module="connections", parameters={"address": broker.address, "count": count}))
        try:
            holder.wait_ready()
            time.sleep(SETTLE_S)
            grown = broker.rss_bytes() - before
            taken = sample(broker, [Load(module="produce", parameters=one)])
            holder.go()
            report = holder.result()
        finally:
            holder.close()
    return {
        "connections.held": float(report["answered"]),
        "connections.rss": grown / 1024 / max(1, report["opened"]),
        "connections.produce": 1e3 * taken.wall_s,
    }
