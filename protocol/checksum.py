"""CRC-32C in hardware.

The crc32c distribution reads its own version number when imported, and with it pulls in importlib.metadata and the
email package: 20 ms of a start that should take a few hundred. Its compiled module is all we need, so load only that.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, PathFinder
from types import ModuleType


def _load_extension() -> ModuleType:
    package = PathFinder.find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        import crc32c  # laid out in a way we do not know: take the slow road

        return crc32c
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    return module


# crc32c(data, crc=0): the second argument continues the checksum of what came before.
crc32c: Callable[..., int] = _load_extension().crc32c
