"""Faults, drawn from a seed before the run begins: what, to whom, when, for how long. So a run can be repeated without
some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Final

from cluster_simulation import layouts
from cluster_simulation.cuts import cut_clients, cut_pair, isolate, one_way
from cluster_simulation.fault import Begin, Fault, broker_of, later
from cluster_simulation.losses import (
    bit_flip,
    damaged_restarts,
    replaced_disk,
    replaced_metadata,
    torn_journal,
)
from tidemark.simulation import Broker, Cluster

SECONDS_MAX: Final = 8.0


def kill(cluster: Cluster, fault: Fault) -> None:
    broker_of(cluster, fault).kill()
    later(cluster, fault, broker_of(cluster, fault).start)


def power(cluster: Cluster, fault: Fault) -> None:
    broker_of(cluster, fault).cut_power()
    later(cluster, fault, broker_of(cluster, fault).start)


def stopped_power(cluster: Cluster, fault: Fault) -> None:
    """After a clean stop: the next start believes what it finds."""
    broker = broker_of(cluster, fault)

    def cut() -> None:
        broker.cut_power()
        later(cluster, fault, broker.start)

    broker.stop(then=cut)


def blackout(cluster: Cluster, fault: Fault) -> None:
    """All of them at once."""
    for broker in cluster.brokers.values():
        broker.cut_power()
        cluster.world.after(fault.seconds * (0.5 + 0.5 * fault.amount) + broker.node_id * 0.1, broker.start)


def stop(cluster: Cluster, fault: Fault) -> None:
    broker = broker_of(cluster, fault)
    broker.stop(then=lambda: later(cluster, fault, broker.start))


def pause(cluster: Cluster, fault: Fault) -> None:
    process = broker_of(cluster, fault).process
    if process is not None:
        process.pause(fault.seconds)


def sleep(cluster: Cluster, fault: Fault) -> None:
    process = broker_of(cluster, fault).process
    if process is not None:
        process.pause(fault.seconds, machine_sleeps=True)


def slow(cluster: Cluster, fault: Fault) -> None:
    cluster.network.slow[fault.node_name] = 0.01 + 0.2 * fault.amount**2

    def end() -> None:
        cluster.network.slow.pop(fault.node_name, None)

    later(cluster, fault, end)


def resets(cluster: Cluster, fault: Fault) -> None:
    cluster.network.reset_some(fault.node_name, cluster.network.random, 0.2 + 0.8 * fault.amount)


def disk_full(cluster: Cluster, fault: Fault) -> None:
    disk = broker_of(cluster, fault).machine.disk
    disk.room_bytes = int(fault.amount * 4000)

    def end() -> None:
        disk.room_bytes = None

    later(cluster, fault, end)


def cold_caches(cluster: Cluster, fault: Fault) -> None:
    """Nothing that is on the disk is in memory any more: reads wait for the disk, which is slow for a while."""
    disk = broker_of(cluster, fault).machine.disk
    disk.drop_caches()
    disk.read_seconds = 0.002 + 0.3 * fault.amount**2

    def end() -> None:
        disk.drop_caches()
        disk.read_seconds = 0.004

    later(cluster, fault, end)


def disk_hang(cluster: Cluster, fault: Fault) -> None:
    broker_of(cluster, fault).machine.disk.hangs_until = cluster.world.now + fault.seconds


def slow_sync(cluster: Cluster, fault: Fault) -> None:
    disk = broker_of(cluster, fault).machine.disk
    disk.sync_seconds = 0.01 + 0.3 * fault.amount

    def end() -> None:
        disk.sync_seconds = 0.002

    later(cluster, fault, end)


def sync_errors(cluster: Cluster, fault: Fault) -> None:
    _failing(cluster, fault, "sync", 0.3 + 0.7 * fault.amount)


def _failing(cluster: Cluster, fault: Fault, what: str, chance: float) -> None:
    disk = broker_of(cluster, fault).machine.disk
    disk.failing, disk.failing_chance = frozenset((what,)), chance

    def end() -> None:
        """A disk that failed is not trusted by a running broker: it is restarted, as an operator would."""
        disk.failing = frozenset()
        broker_of(cluster, fault).kill()
        cluster.world.after(0.5, broker_of(cluster, fault).start)

    later(cluster, fault, end)


def write_errors(cluster: Cluster, fault: Fault) -> None:
    _failing(cluster, fault, "write", 0.05 + 0.6 * fault.amount)


def read_errors(cluster: Cluster, fault: Fault) -> None:
    _failing(cluster, fault, "read", 0.02 + 0.3 * fault.amount)


def dead_directory(cluster: Cluster, fault: Fault) -> None:
    """One of several disks fails; it is mended, and the node restarted."""
    disk, path = broker_of(cluster, fault).machine.disk, layouts.last_directory(fault.node, fault.layout)
    disk.dead.add(path)

    def end() -> None:
        disk.dead.discard(path)
        broker_of(cluster, fault).kill()
        cluster.world.after(0.5, broker_of(cluster, fault).start)

    later(cluster, fault, end)


def kills_then_blackout(cluster: Cluster, fault: Fault) -> None:
    """Everything is killed and restarted, and soon after that the power fails: what the first lives left in the page
    caches is still not synced."""
    for broker in cluster.brokers.values():
        broker.kill()
        cluster.world.after(0.1 * broker.node_id, broker.start)
    blackout_then = dataclasses.replace(fault, kind="blackout", seconds=1.0)
    cluster.world.after(3.0 + 4 * fault.amount, lambda: begin(cluster, blackout_then))


def hand_over(cluster: Cluster, fault: Fault) -> None:
    """One dies, another goes on without it, and is gone when the first comes back: what the first has not heard of
    must not be missing."""
    first, second = _pair(cluster, fault)
    if int(fault.amount * 10) % 3:
        first.stop()  # cleanly: it stays eligible (KIP-966)
    else:
        first.kill()

    def swap() -> None:
        second.kill()
        cluster.world.after(0.2, first.start)
        cluster.world.after(3.0 + fault.seconds, second.start)  # long enough for the first to be elected, if it may

    cluster.world.after(2.0 + 4 * fault.amount, swap)


def _pair(cluster: Cluster, fault: Fault) -> tuple[Broker, Broker]:
    """A follower and the leader of some partition, as a node sees it that is up; or any two."""
    up = next((each for each in cluster.brokers.values() if each.is_ready and each.node is not None), None)
    if up is not None:
        topics = up.node._store.image.topics  # type: ignore[union-attr]
        led = [each for _, topic in sorted(topics.items()) for each in topic.partitions if len(each.isr) > 1]
        led = [each for each in led if len(each.replicas) == 2 and fault.amount > 0.3] or led
        if led:
            chosen = led[int(fault.amount * 1000) % len(led)]
            follower = next(each for each in chosen.isr if each != chosen.leader)
            if chosen.leader in cluster.brokers and follower in cluster.brokers:
                return cluster.brokers[follower], cluster.brokers[chosen.leader]
    first = broker_of(cluster, fault)
    return first, next(each for each in cluster.brokers.values() if each is not first)


def rolling_stop(cluster: Cluster, fault: Fault) -> None:
    """All stop cleanly, one after the other, and start again, the last one last."""
    _roll(cluster, fault, lambda _: None)


def rolling_replace(cluster: Cluster, fault: Fault) -> None:
    """Likewise, and an empty disk takes the place of one: it is not the one to begin with."""
    _roll(
        cluster,
        fault,
        lambda broker: broker.machine.disk.replace(layouts.last_directory(fault.node, fault.layout)),
    )


def _roll(cluster: Cluster, fault: Fault, when_stopped: Callable[[Broker], None]) -> None:
    """`fault.node` is the last but one to stop: it was in sync for longer than any but the last."""
    chosen = broker_of(cluster, fault)
    others = [each for each in cluster.brokers.values() if each is not chosen]
    turned = int(fault.amount * 100) % len(others)
    others = [*others[turned:], *others[:turned]]
    order = [*others[:-1], chosen, others[-1]]

    def stop_next(at: int) -> None:
        if at == len(order):
            cluster.world.after(0.2, start_all)
            return
        if not order[at].is_ready:
            stop_next(at + 1)
            return
        order[at].stop(then=lambda: stop_next(at + 1))

    def start_all() -> None:
        if not chosen.is_running:
            when_stopped(chosen)
        for broker in order[:-1]:
            broker.start()
        later(cluster, fault, order[-1].start)

    stop_next(0)


def unsynced_kills(cluster: Cluster, fault: Fault) -> None:
    """Syncs take seconds; before they end everything is killed, and restarted; and then the power fails. What the
    first lives wrote is in the page caches until then, and may not be acknowledged as if it were on the disks."""
    for broker in cluster.brokers.values():
        broker.machine.disk.sync_seconds = 4.0

    def kill_all() -> None:
        for broker in cluster.brokers.values():
            broker.machine.disk.sync_seconds = 0.002
            broker.kill()
            cluster.world.after(0.1, broker.start)

    cluster.world.after(1.5, kill_all)
    blackout_then = dataclasses.replace(fault, kind="blackout", seconds=1.0)
    cluster.world.after(4.0 + 4 * fault.amount, lambda: begin(cluster, blackout_then))


def pause_client(cluster: Cluster, fault: Fault) -> None:
    """A client stands still, mostly until others have what it had, and goes on as if nothing had been."""
    clients = [each for each in cluster.clients if each.is_alive]
    members = [each for each in clients if each.machine.name.startswith(("classic", "consumer", "transform"))]
    chosen = members or clients
    if chosen:
        seconds = 2.0 if int(fault.amount * 100) % 3 == 0 else 8.0 + 0.5 * fault.seconds
        chosen[int(fault.amount * 1000) % len(chosen)].pause(seconds)


def lagging_pause(cluster: Cluster, fault: Fault) -> None:
    """A node hears late, and then stands still for longer than its session: when it goes on it finds answers to what it
    asked long ago. If it was its machine that slept, its time-outs have not passed."""
    name, process = fault.node_name, broker_of(cluster, fault).process
    if process is None or cluster.network.slow or any(_is_stopped(each) for each in cluster.brokers.values()):
        return  # the others must be there to fence it
    cluster.network.slow[name] = 0.6
    seconds, machine_sleeps = 10.0 + 2 * fault.amount, int(fault.amount * 100) % 3 > 0
    cluster.world.after(1.0, lambda: process.pause(seconds, machine_sleeps=machine_sleeps))

    def end() -> None:
        cluster.network.slow.pop(name, None)

    cluster.world.after(3.0, end)


def _is_stopped(broker: Broker) -> bool:
    return broker.process is not None and broker.process.is_stopped


def isolated_kill(cluster: Cluster, fault: Fault) -> None:
    """A node is cut off from the others, not from clients, until another leads what it led; then it is killed. What it
    alone has must go when it comes back."""
    broker = broker_of(cluster, fault)
    lasts = 9.0 + 2 * fault.amount
    isolate(cluster, dataclasses.replace(fault, seconds=lasts))
    cluster.world.after(lasts - 0.1, broker.kill)
    cluster.world.after(lasts + 0.1, broker.start)


def isolated_stop(cluster: Cluster, fault: Fault) -> None:
    """Likewise, and it stops cleanly: the next start trusts what it finds."""
    broker = broker_of(cluster, fault)
    isolate(cluster, dataclasses.replace(fault, seconds=18.0))
    begun = broker.process

    def start() -> None:
        if broker.process is begun:
            cluster.world.after(0.5, broker.start)

    cluster.world.after(8.0 + 2 * fault.amount, lambda: broker.stop(then=start))


def clock_drift(cluster: Cluster, fault: Fault) -> None:
    machine = broker_of(cluster, fault).machine
    machine.set_clock_rate(1 + (fault.amount - 0.5) * 0.06)
    later(cluster, fault, lambda: machine.set_clock_rate(1.0))


def clock_jump(cluster: Cluster, fault: Fault) -> None:
    broker_of(cluster, fault).machine.wall_offset_seconds += (fault.amount - 0.5) * 3600


KINDS: Final[dict[str, dict[str, Begin]]] = {
    "crash": {
        "kill": kill,
        "stop": stop,
        "pause": pause,
        "sleep": sleep,
        "hand_over": hand_over,
        "rolling_stop": rolling_stop,
        "pause_client": pause_client,
        "lagging_pause": lagging_pause,
        "isolated_kill": isolated_kill,
        "isolated_stop": isolated_stop,
    },
    "power": {
        "power": power,
        "stopped_power": stopped_power,
        "blackout": blackout,
        "kills_then_blackout": kills_then_blackout,
        "unsynced_kills": unsynced_kills,
        "torn_journal": torn_journal,
    },
    "network": {
        "isolate": isolate,
        "cut_pair": cut_pair,
        "one_way": one_way,
        "cut_clients": cut_clients,
        "slow": slow,
        "resets": resets,
    },
    "disk": {
        "cold_caches": cold_caches,
        "disk_full": disk_full,
        "disk_hang": disk_hang,
        "slow_sync": slow_sync,
        "sync_errors": sync_errors,
        "write_errors": write_errors,
        "read_errors": read_errors,
        "dead_directory": dead_directory,
    },
    "damage": {
        "bit_flip": bit_flip,
        "replaced_disk": replaced_disk,
        "rolling_replace": rolling_replace,
        "replaced_metadata": replaced_metadata,
        "damaged_restarts": damaged_restarts,
    },
    "clock": {"clock_drift": clock_drift, "clock_jump": clock_jump},
}
BEGIN: Final = {name: begin for kinds in KINDS.values() for name, begin in kinds.items()}
DAMAGE: Final = frozenset(KINDS["damage"])  # a replica loses what it had acknowledged, synced or not
UNCLEAN: Final = frozenset(
    (
        "kill",
        "isolated_kill",
        "power",
        "stopped_power",
        "torn_journal",
        "sync_errors",
        "write_errors",
        "read_errors",
        "dead_directory",
        *KINDS["damage"],
    )
)  # the node is restarted without a clean stop
ENDS_A_NODE: Final = frozenset(
    ("sync_errors", "write_errors", "read_errors", "dead_directory", "replaced_metadata")
)  # whatever else befalls it, a node goes on, or is ended by somebody
NEEDS: Final = {
    "dead_directory": ("two",),
    "replaced_disk": ("two", "apart"),
    "rolling_replace": ("two", "apart"),
    "replaced_metadata": ("apart",),
}  # layouts

# What is fair. With min.insync.replicas of 2 nothing acknowledged is lost as long as one replica at a time loses what
# it had (KIP-966), and the controller cannot tell a process that was killed from a machine that lost power: so where
# replicas do lose something, all nodes but one stop cleanly.
SYNCED: Final = "synced"  # every acknowledgement is synced: any machine may lose power, all of them at once
CACHED: Final = "cached"  # it is not: any process may be killed, no machine loses power
UNLUCKY: Final = "unlucky"  # one node loses power and data, and is the only one that stops uncleanly


def draw_mode(random: Random, groups: tuple[str, ...]) -> str:
    """`groups`: of kinds, or kinds."""
    kinds = {kind for group in groups for kind in KINDS.get(group, (group,))}
    if kinds & DAMAGE and random.random() < 0.4:
        return UNLUCKY
    if kinds & {*KINDS["power"]}:
        return random.choice((SYNCED, CACHED, UNLUCKY) if kinds - {*KINDS["power"]} else (SYNCED, UNLUCKY))
    return random.choice((SYNCED, CACHED))


def draw(random: Random, *, nodes: int, seconds: float, groups: tuple[str, ...], mode: str, layout: str) -> list[Fault]:
    kinds = [name for group in groups for name in KINDS.get(group, (group,)) if _is_fair(name, mode, layout)]
    mean = random.choice((1.5, 3.0, 6.0))
    unlucky = random.randint(1, nodes)
    faults, at = [], 0.5 + random.random()
    while at < seconds and kinds:
        kind = random.choice(kinds)
        node = unlucky if mode == UNLUCKY and kind in UNCLEAN else random.randint(1, nodes)
        lasts = 0.1 + random.random() ** 2 * SECONDS_MAX
        faults.append(Fault(kind=kind, node=node, at=at, seconds=lasts, amount=random.random(), layout=layout))
        at += random.expovariate(1 / mean)
    return faults


def _is_fair(kind: str, mode: str, layout: str) -> bool:
    if layout not in NEEDS.get(kind, (layout,)):
        return False
    if kind in ("blackout", "kills_then_blackout", "unsynced_kills"):
        return mode == SYNCED
    if kind == "hand_over":
        return mode != UNLUCKY  # two of them stop uncleanly
    if kind in ("power", "stopped_power", "torn_journal"):
        return mode != CACHED
    return kind not in DAMAGE or mode == UNLUCKY


def begin(cluster: Cluster, fault: Fault) -> None:
    cluster.world.note("nemesis", str(fault))
    BEGIN[fault.kind](cluster, fault)


def heal(cluster: Cluster) -> None:
    cluster.world.note("nemesis", "heals everything")
    cluster.network.heal_all()
    for broker in cluster.brokers.values():
        disk = broker.machine.disk
        disk.room_bytes, disk.failing, disk.sync_seconds, disk.read_seconds = None, frozenset(), 0.002, 0.004
        disk.dead.clear()
        disk.hangs_until = min(disk.hangs_until, cluster.world.now)
        broker.machine.set_clock_rate(1.0)
