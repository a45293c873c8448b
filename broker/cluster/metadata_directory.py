"""The directory of this node's metadata log: its id, and whether this node may begin with an empty one.

Voters are known by the directory that their log and their vote are in (KIP-853). A voter whose disk was replaced, or is
not mounted, has another one: it must not vote as if it remembered. So an empty directory is taken for a new node's only
if nothing else says that this node has been part of a cluster, or if an operator has said so (`tidemark format`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidemark.broker.metadata.records import Record, decode_records, encode_records
from tidemark.environment import current, random_bytes

DIRECTORY_ID_FILE: Final = "directory-id"
REJOIN_FILE: Final = "rejoin"
FIRST_RECORDS_FILE: Final = "first-records"
OWN_FILES: Final = (DIRECTORY_ID_FILE, REJOIN_FILE, FIRST_RECORDS_FILE)


class MetadataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = current().files

    @property
    def id(self) -> bytes:
        """Sixteen random bytes, chosen when the directory is first used."""
        path = self._path_of(DIRECTORY_ID_FILE)
        if not self._files.exists(path):
            self._write(DIRECTORY_ID_FILE, random_bytes(16).hex())
        return bytes.fromhex(self._files.read_all(path).decode().strip())

    @property
    def holds_metadata(self) -> bool:
        path = str(self.path)
        names = self._files.list(path) if self._files.is_directory(path) else []
        return any(self._files.size(self._path_of(each)) for each in names if each not in OWN_FILES)

    @property
    def is_rejoining(self) -> bool:
        """Whether this node begins anew in a cluster that exists: it must not found another one, nor vote."""
        return self._files.exists(self._path_of(REJOIN_FILE))

    def allow_rejoining(self) -> None:
        self._write(REJOIN_FILE, "")

    def rejoined(self) -> None:
        self._files.remove(self._path_of(REJOIN_FILE))

    @property
    def first_records(self) -> list[Record]:
        """What a new cluster begins with, beside what every one does: users, say (`tidemark format --add-scram`)."""
        path = self._path_of(FIRST_RECORDS_FILE)
        return list(decode_records(self._files.read_all(path))) if self._files.exists(path) else []

    def set_first_records(self, records: Iterable[Record]) -> None:
        self._files.make_directories(str(self.path))
        self._files.replace(self._path_of(FIRST_RECORDS_FILE), encode_records(records), sync=True)

    def forget_first_records(self) -> None:
        """They are in the metadata now. Whoever finds the file could guess passwords with it."""
        self._files.remove(self._path_of(FIRST_RECORDS_FILE))

    def check_new(self, *, node_id: int, cluster_id: str) -> None:
        """The log directories belong to a cluster, and there is no metadata: refused unless an operator allowed it."""
        if not self.is_rejoining:
            raise RuntimeError(
                f"the metadata of node {node_id} is missing in {self.path}, although its log directories belong to"
                f" cluster {cluster_id}. If a disk is not mounted, mount it. If the metadata is lost for good, take the"
                f" node's vote away (RemoveRaftVoter) and run `tidemark format` with the node's settings: it"
                f" then joins its cluster again, without a vote"
            )

    def _path_of(self, name: str) -> str:
        return str(self.path / name)

    def _write(self, name: str, text: str) -> None:
        self._files.make_directories(str(self.path))
        self._files.replace(self._path_of(name), text.encode(), sync=True)
