"""The features of the cluster (KIP-584): the levels that this software can do, and those that the cluster uses.

`metadata.version`, `eligible.leader.replicas.version`, `group.version`, `kraft.version` and `transaction.version` are
Kafka's names and levels, so that its tools can tell what a cluster can do. `tidemark.metadata.version` is ours: the
level of what is written into the metadata log and the quorum's configuration.

1: as before features had levels
2: members of the quorum have directory ids
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidemark.broker.metadata.image import Image

OUR_METADATA_VERSION: Final = "tidemark.metadata.version"
DIRECTORY_IDS_LEVEL: Final = 2
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 25),  # 3.3-IV3 to 4.0-IV3
        OUR_METADATA_VERSION: (1, 2),
        "transaction.version": (0, 2),
    }
)
# What a broker can do that does not name the feature: it is of a build that did not know it yet.
UNNAMED: Final[Mapping[str, int]] = MappingProxyType({OUR_METADATA_VERSION: 1})
FIXED: Final = frozenset(SUPPORTED) - {"transaction.version", OUR_METADATA_VERSION}  # nothing here does without them


def finalized(image: Image) -> dict[str, int]:
    """The level of each that the cluster uses: the highest that all brokers can do, unless an operator has chosen."""
    return {name: image.features.get(name, _highest_common(image, name)) for name in SUPPORTED}


def _highest_common(image: Image, name: str) -> int:
    high = SUPPORTED[name][1]
    if name not in UNNAMED:
        return high
    return min((broker.features.get(name, (0, UNNAMED[name]))[1] for broker in image.brokers.values()), default=high)


def may_write_directory_ids(image: Image) -> bool:
    """Whether every broker can read a configuration of the quorum that has them."""
    return finalized(image)[OUR_METADATA_VERSION] >= DIRECTORY_IDS_LEVEL
