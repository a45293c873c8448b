"""How a node's disks are laid out: one directory for all, metadata apart, or two log directories."""

from __future__ import annotations

from typing import Final

LAYOUTS: Final = ("one", "one", "apart", "two")


def settings(node_id: int, layout: str) -> dict[str, str]:
    if layout == "apart":
        return {"metadata.log.dir": f"/node-{node_id}/metadata"}
    if layout == "two":
        return {"log.dirs": f"/node-{node_id}/data,/node-{node_id}/more"}
    return {}


def last_directory(node_id: int, layout: str) -> str:
    """One that holds no metadata, if there is such a one."""
    return f"/node-{node_id}/{'more' if layout == 'two' else 'data'}"
