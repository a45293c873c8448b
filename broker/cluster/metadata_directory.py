"""The directory of this node's metadata log: its id, and whether this node may begin with an empty one.

Voters are known by the directory that their log and their vote are in (KIP-853). A voter whose disk was replaced, or is
not mounted, has another one: it must not vote as if it remembered. So an empty directory is taken for a new node's only
if nothing else says that this node has been part of a cluster, or if an operator has said so (`tidemark format`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidemark import portable

DIRECTORY_ID_FILE: Final = "directory-id"
REJOIN_FILE: Final = "rejoin"


class MetadataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> bytes:
        """Sixteen random bytes, chosen when the directory is first used."""
        file = self.path / DIRECTORY_ID_FILE
        if not file.exists():
            self._write(DIRECTORY_ID_FILE, os.urandom(16).hex())
        return bytes.fromhex(file.read_text().strip())

    @property
    def holds_metadata(self) -> bool:
        own = {DIRECTORY_ID_FILE, REJOIN_FILE}
        return self.path.is_dir() and any(each.name not in own and each.stat().st_size for each in self.path.iterdir())

    @property
    def is_rejoining(self) -> bool:
        """Whether this node begins anew in a cluster that exists: it must not found another one, nor vote."""
        return (self.path / REJOIN_FILE).exists()

    def allow_rejoining(self) -> None:
        self._write(REJOIN_FILE, "")

    def rejoined(self) -> None:
        (self.path / REJOIN_FILE).unlink(missing_ok=True)

    def check_new(self, *, node_id: int, cluster_id: str) -> None:
        """The log directories belong to a cluster, and there is no metadata: refused unless an operator allowed it."""
        if not self.is_rejoining:
            raise RuntimeError(
                f"the metadata of node {node_id} is missing in {self.path}, although its log directories belong to"
                f" cluster {cluster_id}. If a disk is not mounted, mount it. If the metadata is lost for good, take the"
                f" node's vote away (RemoveRaftVoter) and run `tidemark format` with the node's settings: it"
                f" then joins its cluster again, without a vote"
            )

    def _write(self, name: str, text: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f"{name}.tmp"
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)
        directory = os.open(self.path, os.O_RDONLY | portable.O_DIRECTORY)
        try:
            portable.sync_all(directory)
        finally:
            os.close(directory)
