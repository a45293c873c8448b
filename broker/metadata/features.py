"""The features of the cluster (KIP-584): the levels that this software can do, and those that the cluster uses.

`metadata.version`, `eligible.leader.replicas.version`, `group.version`, `kraft.version` and `transaction.version` are
Kafka's names and levels, so that its tools can tell what a cluster can do: what Kafka 4.1 finalizes, the last release
without share and streams groups. `tidemark.metadata.version` is ours: the level of what is written into the metadata
log and the quorum's configuration.

1: as before features had levels
2: members of the quorum have directory ids
3: credentials, access control entries, delegation tokens, quotas, and the log directories of replicas

A new cluster uses the newest level of each from its first record on. An older one goes on with what it has until an
operator raises it (UpdateFeatures), so that its nodes can be upgraded one by one, and back, before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import BrokerImage, Image
from tidemark.broker.metadata.records import ClusterRecord, FeatureLevelRecord, Record
from tidemark.protocol.errors import ErrorCode

OUR_METADATA_VERSION: Final = "tidemark.metadata.version"
DIRECTORY_IDS_LEVEL: Final = 2
SECURITY_LEVEL: Final = 3
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 27),  # 3.3-IV3 to 4.1-IV1
        OUR_METADATA_VERSION: (1, 3),
        "transaction.version": (0, 2),
    }
)
# What a cluster uses whose first records were written before levels were: what its software did then.
UNRECORDED: Final[Mapping[str, int]] = MappingProxyType(
    {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 25,
        OUR_METADATA_VERSION: 1,
        "transaction.version": 2,
    }
)
UNKNOWN: Final = (0, 0)  # the range of an unknown feature: as in Kafka, it can be turned off
LOWERABLE: Final = frozenset({"transaction.version"})  # what the others brought cannot be taken back


def new_cluster(cluster_id: str, more: Sequence[Record] = ()) -> list[Record]:
    """The first records of a cluster: what every one begins with, and what its operator wants `more`."""
    levels = [FeatureLevelRecord(name=name, level=high) for name, (_, high) in SUPPORTED.items()]
    return [ClusterRecord(cluster_id=cluster_id), *levels, *more]


def finalized(image: Image) -> dict[str, int]:
    """The level of each that the cluster uses."""
    return {name: image.features.get(name, UNRECORDED[name]) for name in SUPPORTED}


def supported_by(broker: BrokerImage, name: str) -> tuple[int, int]:
    """A broker that does not name a feature is of a build that did not know it yet."""
    default = (0, UNRECORDED[name]) if name in UNRECORDED else UNKNOWN
    return broker.features.get(name, default)


def check_broker(image: Image, broker: BrokerImage) -> None:
    """A broker that cannot do what the cluster uses is not let in: it could not read the metadata."""
    for name, level in {**image.features, **finalized(image)}.items():
        low, high = supported_by(broker, name)
        if not low <= level <= high:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster uses {name} {level}, and broker {broker.broker_id} can do {low} to {high}.",
            )


def may_write_directory_ids(image: Image) -> bool:
    """Whether every broker can read a configuration of the quorum that has them."""
    return finalized(image)[OUR_METADATA_VERSION] >= DIRECTORY_IDS_LEVEL


def check_security_level(image: Image) -> None:
    """Before a record of level 3 is written: whether every broker can read it."""
    if finalized(image)[OUR_METADATA_VERSION] < SECURITY_LEVEL:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The cluster must be at {OUR_METADATA_VERSION} {SECURITY_LEVEL} for this: raise it with UpdateFeatures.",
        )


def check_level(image: Image, name: str, level: int, *, may_lower: bool) -> None:
    """Whether the cluster may use this level of a feature from now on."""
    supported = SUPPORTED.get(name, UNKNOWN)
    if not supported[0] <= level <= supported[1]:
        raise _refused(name, level, _range("This controller", supported))
    for broker in image.brokers.values():
        low, high = supported_by(broker, name)
        if not low <= level <= high:
            raise _refused(name, level, _range(f"Broker {broker.broker_id}", (low, high)))
    now = finalized(image).get(name, 0)
    if level < now and not may_lower:
        raise _refused(name, level, f"It is at {now}, and can be lowered only by a downgrade.")
    if level > now and may_lower:
        raise _refused(name, level, f"It is at {now}, and can be raised only by an upgrade.")
    if level < now and name not in LOWERABLE:
        raise _refused(name, level, f"It is at {now}, and what that has brought cannot be taken back.")


def _range(subject: str, supported: tuple[int, int]) -> str:
    if supported == UNKNOWN:
        return f"{subject} does not support this feature."
    return f"{subject} only supports versions {supported[0]}-{supported[1]}."


def _refused(name: str, level: int, reason: str) -> Refused:
    return Refused(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid version {level} of {name}. {reason}")
