"""Kafka's features that this software knows (KIP-584), and the levels of each that it can do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidemark.broker.metadata.image import Image

TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_MAX: Final = 2
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({TRANSACTION_VERSION: (0, TRANSACTION_VERSION_MAX)})


def finalized(image: Image) -> dict[str, int]:
    """The level of each that the cluster uses: the highest, unless somebody has said otherwise."""
    return {name: image.features.get(name, high) for name, (_, high) in SUPPORTED.items()}
