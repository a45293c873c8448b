"""Faults that take something from a disk, or change it."""

from __future__ import annotations

import dataclasses
from random import Random

from cluster_simulation import damage, layouts, lost_metadata
from cluster_simulation.cuts import isolate
from cluster_simulation.fault import Fault, broker_of, later
from tidemark.simulation import Broker, Cluster
from tidemark.simulation.disk import PAGE, File


def replaced_disk(cluster: Cluster, fault: Fault) -> None:
    """An empty disk takes the place of one without metadata, after a clean stop or an unclean one."""
    broker = broker_of(cluster, fault)

    def replace() -> None:
        if not broker.is_running:
            broker.machine.disk.replace(layouts.last_directory(fault.node, fault.layout))
            later(cluster, fault, broker.start)

    if fault.amount < 0.5:
        broker.stop(then=replace)
    else:
        broker.kill()
        replace()


def replaced_metadata(cluster: Cluster, fault: Fault) -> None:
    lost_metadata.replace_metadata(cluster, broker_of(cluster, fault))


def bit_flip(cluster: Cluster, fault: Fault) -> None:
    """Of what a start looks at: after the recovery point. What is before it is checked by `tidemark log verify`."""
    broker = broker_of(cluster, fault)
    broker.kill()
    flipped = damage.flip_a_bit(broker.machine.disk, Random(f"flip {fault}"))
    cluster.world.note("nemesis", f"flips a bit of {flipped}")
    later(cluster, fault, broker.start)


def damaged_restarts(cluster: Cluster, fault: Fault) -> None:
    """Of a partition's two replicas one is stopped, and the other damaged: with nobody to fetch it from, the log is
    refused. A clean stop and another start must not make it a sound one."""
    broker = broker_of(cluster, fault)
    found = _other_of_two(cluster, broker)
    if found is None:
        return
    name, other = found

    def restart() -> None:
        cluster.world.after(0.2, broker.start)

    def spoil() -> None:
        broker.kill()
        flipped = damage.flip_a_bit(broker.machine.disk, Random(f"flip {fault}"), of=name)
        cluster.world.note("nemesis", f"flips a bit of {flipped}")
        restart()
        cluster.world.after(6.0 + 2 * fault.amount, lambda: broker.stop(then=restart))
        cluster.world.after(12.0 + 2 * fault.amount, other.start)

    other.stop(then=spoil)


def _other_of_two(cluster: Cluster, broker: Broker) -> tuple[str, Broker] | None:
    """A partition that has two replicas, one of them here, and the broker with the other."""
    if not broker.is_ready or broker.node is None:
        return None
    for name, topic in sorted(broker.node._store.image.topics.items()):
        for index, partition in enumerate(topic.partitions):
            others = {*partition.replicas} - {broker.node_id}
            if len(partition.replicas) == 2 and len(others) == 1 and (other := cluster.brokers.get(others.pop())):
                return f"{name}-{index}", other
    return None


def torn_journal(cluster: Cluster, fault: Fault) -> None:
    """A node is cut off, and the power fails while it saves what it has missed of the quorum's log: several entries,
    in several pages, of which the first is lost, and those after it are not."""
    broker, disk = broker_of(cluster, fault), broker_of(cluster, fault).machine.disk
    if cluster.network.cuts:
        return  # the others must go on without it
    lasts = 6.0 + 4 * fault.amount
    isolate(cluster, dataclasses.replace(fault, seconds=lasts))
    disk.sync_seconds = 0.3

    def look(times: int) -> None:
        journals = [file for path, file in disk.files() if path.endswith("/journal") and _is_in_several_pages(file)]
        if not journals and times:
            cluster.world.after(0.02, lambda: look(times - 1))
            return
        disk.sync_seconds = 0.002
        if broker.is_running and times:
            for each in journals:
                each.lose_page(min(each.dirty))
            broker.cut_power()
            cluster.world.after(0.3, broker.start)

    cluster.world.after(lasts, lambda: look(150))


def _is_in_several_pages(file: File) -> bool:
    """What was not synced: the last append."""
    return bool(file.dirty) and len(file.data) > (min(file.dirty) + 1) * PAGE
