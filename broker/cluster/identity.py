"""Whose data this is: what the meta.properties files of the log directories say about their node and their cluster."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from tidemark.broker.config import BrokerConfig
from tidemark.environment import random_bytes
from tidemark.storage import LogDirectory

CLUSTER_ID = "cluster.id"
NODE_ID = "node.id"
DIRECTORY_ID = "directory.id"
ID_BYTES = 16


class NodeIdentity:
    def __init__(self, config: BrokerConfig, directories: Sequence[LogDirectory]) -> None:
        """Refused if a directory is another node's, or if they are of different clusters."""
        self._node_id = str(config.node_id)
        self._directories = directories
        self._check_owner()
        for directory in directories:
            directory.id = _directory_id(directory)
        self.cluster_id = self._find_cluster_id(config.cluster_id)
        """Empty until the settings, a log directory or the cluster has said."""
        self.is_formatted = any(CLUSTER_ID in each.meta_properties() for each in directories)
        """Whether a log directory has belonged to a node of a cluster before."""

    def _check_owner(self) -> None:
        for directory in self._directories:
            owner = directory.meta_properties().get(NODE_ID, self._node_id)
            if owner != self._node_id:
                raise RuntimeError(
                    f"{directory.path} belongs to node {owner}, but this is node {self._node_id} (node.id)"
                )

    def _find_cluster_id(self, configured: str | None) -> str:
        known = {each.meta_properties().get(CLUSTER_ID, "") for each in self._directories}
        known.add(configured or "")
        known.discard("")
        if len(known) > 1:
            raise RuntimeError(f"the log directories belong to different clusters: {', '.join(sorted(known))}")
        return known.pop() if known else ""

    def confirm(self, cluster_id: str) -> None:
        """The metadata says which cluster this is: write it into every log directory."""
        if self.cluster_id and self.cluster_id != cluster_id:
            raise RuntimeError(f"the data is of cluster {self.cluster_id}, but this is cluster {cluster_id}")
        self.cluster_id = cluster_id
        for directory in self._directories:
            written = directory.meta_properties()
            wanted = {
                CLUSTER_ID: cluster_id,
                NODE_ID: self._node_id,
                DIRECTORY_ID: id_text(directory.id),
            }
            if not wanted.items() <= written.items():
                directory.write_meta_properties(wanted)


def _directory_id(directory: LogDirectory) -> bytes:
    """As it is written there; a new directory gets one."""
    try:
        written = base64.urlsafe_b64decode(directory.meta_properties().get(DIRECTORY_ID, "") + "==")
    except ValueError:
        written = b""
    return written if len(written) == ID_BYTES else random_bytes(ID_BYTES)


def id_text(binary: bytes) -> str:
    """A UUID in Kafka's notation: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(binary).rstrip(b"=").decode()


def random_id() -> str:
    return id_text(random_bytes(ID_BYTES))
