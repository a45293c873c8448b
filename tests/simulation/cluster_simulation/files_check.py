"""What lies on the disks at the end: every file passes its check, and replicas hold the same bytes."""

from __future__ import annotations

import os
from collections import defaultdict

from cluster_simulation.history import Anomaly
from tidemark.broker.metadata.image import Image
from tidemark.protocol.records import iter_batches
from tidemark.simulation import Broker, Cluster
from tidemark.simulation.disk import Directory, File
from tidemark.simulation.files import SimulatedFiles
from tidemark.simulation.process import Process
from tidemark.storage.checking import Finding, Known, check_log, segment_files

SNAPSHOT = ".snapshot"  # one that a loss of power tore stays, and the log's batches are read instead
COMPACTED = ("__consumer_offsets", "__transaction_state", "table")


def check_files(cluster: Cluster, image: Image) -> None:
    """After a clean stop of all nodes. `image`: the metadata just before."""
    logs: dict[str, dict[str, str]] = defaultdict(dict)  # by partition, by broker: the path of its directory
    for broker in cluster.brokers.values():
        assert not broker.is_running
        files = SimulatedFiles(_Reader(broker))
        for path in _partitions(broker):
            name = os.path.basename(path)
            logs[name][broker.name] = path
            topic, _, index = name.rpartition("-")
            partitions = image.topics[topic].partitions if topic in image.topics else ()
            if int(index) >= len(partitions) or broker.node_id not in partitions[int(index)].replicas:
                raise Anomaly(f"{path}: there is no such partition, or it has no replica there")
            for step in check_log(files, path, segment_files(files, path), Known(compacted=topic in COMPACTED)):
                if isinstance(step, Finding) and not step.path.endswith(SNAPSHOT):
                    raise Anomaly(f"{broker.name}: {step}")
    for name, places in logs.items():
        if name.rsplit("-", 1)[0] not in COMPACTED:
            _check_same(cluster, name, places)


class _Reader(Process):
    """A process that only reads, while its machine's own is stopped."""

    def __init__(self, broker: Broker) -> None:
        self.machine = broker.machine
        self.is_alive = True
        self.disk_seconds = 0.0


def _partitions(broker: Broker) -> list[str]:
    found = []
    for path, file in broker.machine.disk.files():
        directory = os.path.dirname(path)
        name = os.path.basename(directory)
        if path.endswith(".log") and isinstance(file, File) and name.rsplit("-", 1)[-1].isdigit():
            found.append(directory)
    return list(dict.fromkeys(found))


def _check_same(cluster: Cluster, name: str, places: dict[str, str]) -> None:
    """Byte by byte, as far as both have it: a follower copies its leader's batches."""
    seen: dict[int, tuple[str, bytes]] = {}
    for broker in cluster.brokers.values():
        directory = places.get(broker.name)
        if directory is None:
            continue
        for offset, batch in _batches(broker, directory):
            other, known = seen.setdefault(offset, (broker.name, batch))
            if known != batch:
                raise Anomaly(f"{name} offset {offset} is not the same on {other} and on {broker.name}")


def _batches(broker: Broker, directory: str) -> list[tuple[int, bytes]]:
    found = broker.machine.disk.find(directory)
    assert isinstance(found, Directory)
    batches = []
    for each in sorted(name for name in found.entries if name.endswith(".log")):
        file = found.entries[each]
        assert isinstance(file, File)
        batches += [(header.base_offset, bytes(batch)) for header, batch in iter_batches(bytes(file.data))]
    return batches
