"""The APIs that this broker serves: those with a message in protocol/messages/ and a handler in broker/handlers/.

Adding an API edits no list: its message file says key, versions and listeners; a handler file (or folder) of the
same name serves it. Both folders are listed, not imported: a handler is loaded when it is first asked for, or after
the start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, Literal

from tidemark.protocol.apis import ApiEntry, apis

ListenerKind = Literal["broker", "controller"]

HANDLERS: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "handlers")


@cache
def api_table() -> Mapping[int, ApiEntry]:
    """Every API that has a handler, by key."""
    handlers = {name.removesuffix(".py") for name in os.listdir(HANDLERS)}
    return MappingProxyType({key: entry for key, entry in apis().items() if entry.module in handlers})


@cache
def served_on(kind: ListenerKind) -> Mapping[int, ApiEntry]:
    """What listeners of this kind serve: for clients, or (KIP-919: also for tools) of the controller."""
    return MappingProxyType({key: entry for key, entry in api_table().items() if kind in entry.listeners})
