"""The feature levels that clients choose their ways by (KIP-584)."""

from __future__ import annotations

from typing import Final

TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_MAX: Final = 2
