"""Make a stopped node the only voter, when a majority of the voters is gone for good.

`python -m tidemark.broker.recover_quorum`, which `tidemark recover-quorum` becomes.

Topics, their ids and settings, and whatever else this node knows of the metadata stay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark.broker.config import BrokerConfig
from tidemark.broker.metadata.brokers import fence
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record, decode_records, encode_records
from tidemark.broker.node import METADATA_DIRECTORY
from tidemark.broker.offline_command import Failed, locked_directories, offline_parser, run_offline
from tidemark.raft import FileStorage, Kind, Survivor


def main(argv: Sequence[str] | None = None) -> int:
    arguments = offline_parser("recover-quorum", __doc__).parse_args(argv)
    return run_offline(arguments, lambda config: _recover(config, for_real=arguments.yes))


def _recover(config: BrokerConfig, *, for_real: bool) -> int:
    with locked_directories(config.log_dirs):
        return _decide_alone(config, for_real=for_real)


def _decide_alone(config: BrokerConfig, *, for_real: bool) -> int:
    directory = Path(config.metadata_log_dir or config.log_dirs[0]) / METADATA_DIRECTORY
    if not directory.is_dir():
        raise Failed(f"there is no metadata in {directory}")
    storage = FileStorage(directory)
    try:
        survivor = Survivor(saved=storage.load())
        image = _image(survivor)
        _describe(survivor, image, config.node_id)
        effects = survivor.alone(config.node_id, encode_records(_fence_lost_voters(survivor, image, config)))
        if not for_real:
            print("Nothing is changed. If this node knows most of all that are left, run it again with --yes.")
            return 0
        storage.save(effects)
    finally:
        storage.close()
    print(f"Node {config.node_id} decides alone from its next start on.")
    print("The voters that are lost must never be started again with what is on their disks.")
    return 0


def _fence_lost_voters(survivor: Survivor, image: Image, config: BrokerConfig) -> list[Record]:
    """Were they left in the in-sync sets, this node could drop out of those first, when it registers again, and its
    partitions would wait for brokers that never come back."""
    records: list[Record] = []
    for broker_id in survivor.configuration.voters:
        if broker_id != config.node_id:
            fenced = list(fence(image, broker_id, config))
            image = image.apply(fenced)
            records += fenced
    return records


def _describe(survivor: Survivor, image: Image, node_id: int) -> None:
    term, index = survivor.last
    partitions = [each for topic in image.topics.values() for each in topic.partitions]
    held = [each for each in partitions if node_id in each.replicas]
    safe = [each for each in held if node_id in (*each.isr, *each.elr)]
    print(f"node {node_id} of cluster {image.cluster_id}: metadata up to term {term}, index {index}")
    print(f"voters: {', '.join(map(str, survivor.configuration.voters)) or 'none'}")
    print(
        f"{len(image.topics)} topic(s), {len(partitions)} partition(s); this node holds {len(held)},"
        f" and {len(safe)} of them with everything that is committed"
    )


def _image(survivor: Survivor) -> Image:
    image, saved = Image(), survivor.saved
    if saved.snapshot is not None:
        image = image.apply(decode_records(saved.snapshot.data))
    for entry in saved.entries:
        if entry.kind is Kind.DATA:
            image = image.apply(decode_records(entry.payload))
    return image


if __name__ == "__main__":
    sys.exit(main())
