"""An earlier build of Tidemark, and nodes that are stopped and started again as another build."""

from __future__ import annotations

import tarfile
from pathlib import Path

from harness.cluster import ClusterNode

ARCHIVE = Path(__file__).resolve().parents[1] / "cluster" / "data" / "tidemark-45b1423.tar.xz"
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # which came with Python 3.11.4


class EarlierBuild:
    def __init__(self, directory: Path) -> None:
        """Unpacked into `directory`."""
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(directory, **SAFELY)
        # Without a safe path the working directory, with today's build in it, would come first.
        self._environment = {"PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"}

    def install(self, node: ClusterNode) -> None:
        """From its next start on the node is of this build."""
        node.environment.update(self._environment)

    def replace(self, node: ClusterNode) -> None:
        """From its next start on the node is of today's build."""
        for name in self._environment:
            del node.environment[name]
