"""The APIs that there are messages for: one file in messages/ each, which declares the key and the versions.

The table is read from the text of these files: 2 ms for all of them, where importing them takes 45 ms. So a broker that
starts in a fraction of a second can know every key and version, and imports only the messages that it is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidemark.protocol.schema import Span, api, span

PRIVATE_FROM: Final = 32000  # keys from here on are our own, between nodes of one cluster: no client sees them

_MESSAGES: Final = os.path.join(os.path.dirname(__file__), "messages")
_REQUEST: Final = re.compile(r"@message\(([^)]*)\)\s+class (\w+)Request\b")
_ARGUMENT: Final = re.compile(r'(\w+)="?([^",]*)"?')


class ApiEntry(NamedTuple):
    key: int
    name: str  # as Kafka writes it: DescribeConfigs
    module: str  # the same as a file's name: describe_configs
    versions: Span
    listeners: frozenset[str]

    @property
    def is_private(self) -> bool:
        return self.key >= PRIVATE_FROM

    @property
    def request(self) -> type[Any]:
        return self._class("Request")

    @property
    def response(self) -> type[Any]:
        return self._class("Response")

    def _class(self, suffix: str) -> type[Any]:
        found: type[Any] = getattr(import_module(f"tidemark.protocol.messages.{self.module}"), self.name + suffix)
        return found


@cache
def apis() -> Mapping[int, ApiEntry]:
    """Every API, by its key."""
    names = sorted(os.listdir(_MESSAGES))
    entries = [_entry(name.removesuffix(".py")) for name in names if name.endswith(".py") and name != "__init__.py"]
    by_key = {entry.key: entry for entry in sorted(entries)}
    if len(by_key) < len(entries):
        raise TypeError("two message files declare the same API key")
    return MappingProxyType(by_key)


def _entry(module: str) -> ApiEntry:
    with open(os.path.join(_MESSAGES, f"{module}.py"), encoding="utf-8") as file:
        declared = _REQUEST.search(file.read())
    if declared is None or api_module(declared[2]) != module:
        raise TypeError(f"protocol/messages/{module}.py declares no request of that name")
    values = dict(_ARGUMENT.findall(declared[1]))
    listeners = values.get("listeners", "broker").split()
    return ApiEntry(int(values["key"]), declared[2], module, span(values["versions"]), frozenset(listeners))


def api_module(name: str) -> str:
    """The name of an API's files: `describe_configs` for DescribeConfigs."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def first_flexible(keys: Iterable[int] | None = None) -> dict[int, int]:
    """For `read_request_header`: from which version on each API's requests have tagged fields."""
    return {key: api(apis()[key].request).flexible.first for key in (apis() if keys is None else keys)}
