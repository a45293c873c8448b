"""A disk whose syncs fail or take long, for as long as a test wants: a small library preloaded into the broker."""

from __future__ import annotations

from pathlib import Path


class BadSyncs:
    """From its next start on, a broker with this environment does as it is told."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._order = directory / "bad-syncs"
        self.environment = {"LD_PRELOAD": str(library), "BAD_SYNCS": str(self._order)}

    def fail(self) -> None:
        self._order.write_text("fail")

    def slow(self, milliseconds: int) -> None:
        self._order.write_text(str(milliseconds))

    def heal(self) -> None:
        self._order.write_text("")
