"""Networks that are cut, for a while."""

from __future__ import annotations

from cluster_simulation.fault import Fault, later, others_of
from tidemark.simulation import Cluster


def isolate(cluster: Cluster, fault: Fault) -> None:
    _cut(cluster, fault, [(fault.node_name, each) for each in others_of(cluster, fault)], both_ways=True)


def cut_pair(cluster: Cluster, fault: Fault) -> None:
    others = others_of(cluster, fault)
    _cut(cluster, fault, [(fault.node_name, others[int(fault.amount * len(others)) % len(others)])], both_ways=True)


def one_way(cluster: Cluster, fault: Fault) -> None:
    paths = [(fault.node_name, each) for each in others_of(cluster, fault)]
    _cut(cluster, fault, paths if fault.amount < 0.5 else [(b, a) for a, b in paths], both_ways=False)


def cut_clients(cluster: Cluster, fault: Fault) -> None:
    """Some clients do not reach a node, or hear nothing from it."""
    names = [each.machine.name for each in cluster.clients]
    chosen = [name for at, name in enumerate(names) if (at * 7 + int(fault.amount * 100)) % 3]
    paths = [(fault.node_name, name) for name in chosen]
    _cut(cluster, fault, paths if fault.amount < 0.7 else [(b, a) for a, b in paths], both_ways=fault.amount < 0.2)


def _cut(cluster: Cluster, fault: Fault, paths: list[tuple[str, str]], *, both_ways: bool) -> None:
    paths = [*paths, *((b, a) for a, b in paths)] if both_ways else paths
    for path in paths:
        cluster.network.cut(*path)

    def end() -> None:
        for path in paths:
            cluster.network.heal(*path)

    later(cluster, fault, end)
