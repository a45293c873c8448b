"""What AddRaftVoter and RemoveRaftVoter check before the quorum is asked to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.cluster.quorum_membership import QuorumMembership

ALONE: Final = "This node has no controller listener: it is a cluster of its own."


def quorum_to_change(
    store: MetadataStore, quorum: QuorumMembership | None, *, cluster_id: str | None
) -> QuorumMembership:
    if not store.is_controller:
        raise Refused(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
    if cluster_id and cluster_id != store.image.cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is cluster {store.image.cluster_id}.")
    if quorum is None:
        raise Refused(ErrorCode.INVALID_REQUEST, ALONE)
    return quorum
