"""Faults, drawn from a seed before the run begins: what, to whom, when, for how long. So a run can be repeated without
some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tidemark.simulation import Broker, Cluster

SECONDS_MAX: Final = 8.0


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    node: int
    at: float
    seconds: float
    amount: float  # from 0 to 1: how much of it

    def __str__(self) -> str:
        return f"{self.kind} node-{self.node} at {self.at:.2f} for {self.seconds:.2f} s"


Begin = Callable[[Cluster, Fault], None]


def _broker(cluster: Cluster, fault: Fault) -> Broker:
    return cluster.brokers[fault.node]


def _others(cluster: Cluster, fault: Fault) -> list[str]:
    return [each.name for each in cluster.brokers.values() if each.node_id != fault.node]


def _later(cluster: Cluster, fault: Fault, end: Callable[[], None]) -> None:
    cluster.world.after(fault.seconds, end)


def kill(cluster: Cluster, fault: Fault) -> None:
    _broker(cluster, fault).kill()
    _later(cluster, fault, _broker(cluster, fault).start)


def power(cluster: Cluster, fault: Fault) -> None:
    _broker(cluster, fault).cut_power()
    _later(cluster, fault, _broker(cluster, fault).start)


def blackout(cluster: Cluster, fault: Fault) -> None:
    """All of them at once."""
    for broker in cluster.brokers.values():
        broker.cut_power()
        cluster.world.after(fault.seconds * (0.5 + 0.5 * fault.amount) + broker.node_id * 0.1, broker.start)


def stop(cluster: Cluster, fault: Fault) -> None:
    broker = _broker(cluster, fault)
    broker.stop(then=lambda: _later(cluster, fault, broker.start))


def pause(cluster: Cluster, fault: Fault) -> None:
    process = _broker(cluster, fault).process
    if process is not None:
        process.pause(fault.seconds)


def sleep(cluster: Cluster, fault: Fault) -> None:
    process = _broker(cluster, fault).process
    if process is not None:
        process.pause(fault.seconds, machine_sleeps=True)


def isolate(cluster: Cluster, fault: Fault) -> None:
    _cut(cluster, fault, [(fault_name(fault), each) for each in _others(cluster, fault)], both_ways=True)


def cut_pair(cluster: Cluster, fault: Fault) -> None:
    others = _others(cluster, fault)
    _cut(cluster, fault, [(fault_name(fault), others[int(fault.amount * len(others)) % len(others)])], both_ways=True)


def one_way(cluster: Cluster, fault: Fault) -> None:
    paths = [(fault_name(fault), each) for each in _others(cluster, fault)]
    _cut(cluster, fault, paths if fault.amount < 0.5 else [(b, a) for a, b in paths], both_ways=False)


def fault_name(fault: Fault) -> str:
    return f"node-{fault.node}"


def _cut(cluster: Cluster, fault: Fault, paths: list[tuple[str, str]], *, both_ways: bool) -> None:
    paths = [*paths, *((b, a) for a, b in paths)] if both_ways else paths
    for path in paths:
        cluster.network.cut(*path)

    def end() -> None:
        for path in paths:
            cluster.network.heal(*path)

    _later(cluster, fault, end)


def slow(cluster: Cluster, fault: Fault) -> None:
    cluster.network.slow[fault_name(fault)] = 0.01 + 0.2 * fault.amount**2

    def end() -> None:
        cluster.network.slow.pop(fault_name(fault), None)

    _later(cluster, fault, end)


def resets(cluster: Cluster, fault: Fault) -> None:
    cluster.network.reset_some(fault_name(fault), cluster.network.random, 0.2 + 0.8 * fault.amount)


def disk_full(cluster: Cluster, fault: Fault) -> None:
    disk = _broker(cluster, fault).machine.disk
    disk.room_bytes = int(fault.amount * 4000)

    def end() -> None:
        disk.room_bytes = None

    _later(cluster, fault, end)


def disk_hang(cluster: Cluster, fault: Fault) -> None:
    _broker(cluster, fault).machine.disk.hangs_until = cluster.world.now + fault.seconds


def slow_sync(cluster: Cluster, fault: Fault) -> None:
    disk = _broker(cluster, fault).machine.disk
    disk.sync_seconds = 0.01 + 0.3 * fault.amount

    def end() -> None:
        disk.sync_seconds = 0.002

    _later(cluster, fault, end)


def sync_errors(cluster: Cluster, fault: Fault) -> None:
    disk = _broker(cluster, fault).machine.disk
    disk.failing, disk.failing_chance = frozenset(("sync",)), 0.3 + 0.7 * fault.amount

    def end() -> None:
        """A disk that failed is not trusted by a running broker: it is restarted, as an operator would."""
        disk.failing = frozenset()
        _broker(cluster, fault).kill()
        cluster.world.after(0.5, _broker(cluster, fault).start)

    _later(cluster, fault, end)


def clock_drift(cluster: Cluster, fault: Fault) -> None:
    machine = _broker(cluster, fault).machine
    machine.set_clock_rate(1 + (fault.amount - 0.5) * 0.06)
    _later(cluster, fault, lambda: machine.set_clock_rate(1.0))


def clock_jump(cluster: Cluster, fault: Fault) -> None:
    _broker(cluster, fault).machine.wall_offset_seconds += (fault.amount - 0.5) * 3600


KINDS: Final[dict[str, dict[str, Begin]]] = {
    "crash": {"kill": kill, "stop": stop, "pause": pause, "sleep": sleep},
    "power": {"power": power, "blackout": blackout},
    "network": {"isolate": isolate, "cut_pair": cut_pair, "one_way": one_way, "slow": slow, "resets": resets},
    "disk": {"disk_full": disk_full, "disk_hang": disk_hang, "slow_sync": slow_sync, "sync_errors": sync_errors},
    "clock": {"clock_drift": clock_drift, "clock_jump": clock_jump},
}
DESTRUCTIVE: Final = frozenset(("power",))  # what was acknowledged may be lost where it happens, unless it was synced
BEGIN: Final = {name: begin for kinds in KINDS.values() for name, begin in kinds.items()}


def draw(random: Random, *, nodes: int, seconds: float, groups: tuple[str, ...], durable: bool) -> list[Fault]:
    """`durable`: acknowledged records are synced. If they are not, one machine at most may lose power: what a majority
    has not written to its disks is gone if a majority loses power, and nobody promised anything else."""
    kinds = [name for group in groups for name in KINDS[group] if durable or name != "blackout"]
    mean = random.choice((1.5, 3.0, 6.0))
    unlucky = random.randint(1, nodes)
    faults, at = [], 0.5 + random.random()
    while at < seconds and kinds:
        kind = random.choice(kinds)
        node = unlucky if kind == "power" and not durable else random.randint(1, nodes)
        lasts = 0.1 + random.random() ** 2 * SECONDS_MAX
        faults.append(Fault(kind=kind, node=node, at=at, seconds=lasts, amount=random.random()))
        at += random.expovariate(1 / mean)
    return faults


def begin(cluster: Cluster, fault: Fault) -> None:
    cluster.world.note("nemesis", str(fault))
    BEGIN[fault.kind](cluster, fault)


def heal(cluster: Cluster) -> None:
    cluster.world.note("nemesis", "heals everything")
    cluster.network.heal_all()
    for broker in cluster.brokers.values():
        disk = broker.machine.disk
        disk.room_bytes, disk.failing, disk.sync_seconds = None, frozenset(), 0.002
        disk.hangs_until = min(disk.hangs_until, cluster.world.now)
        broker.machine.set_clock_rate(1.0)
