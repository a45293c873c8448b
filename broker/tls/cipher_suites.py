"""`ssl.cipher.suites`: names of the standards and OpenSSL's own, and what of them OpenSSL can be told through Python.

The suites of TLS 1.3 cannot be set there. OpenSSL prefers them in a fixed order, so that to allow only the first of
them is to hang up on who does not speak these; any other choice among them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.broker.config import ConfigError

TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


def openssl_names(suites: Sequence[str]) -> list[str]:
    """Those for TLS 1.2, as OpenSSL calls them."""
    return [_openssl_name(each) for each in suites if each not in TLS_1_3]


def modern(suites: Sequence[str]) -> frozenset[str]:
    """Those for TLS 1.3, or a ConfigError if they cannot be chosen."""
    chosen = frozenset(suites) & frozenset(TLS_1_3)
    if chosen != frozenset(TLS_1_3[: len(chosen)]):
        raise ConfigError(
            "ssl.cipher.suites: of the suites of TLS 1.3, only the first ones of this list can be chosen: "
            f"{', '.join(TLS_1_3)}.",
            key="ssl.cipher.suites",
            value=",".join(suites),
        )
    return chosen


def _openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 → ECDHE-RSA-AES128-GCM-SHA256."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC_", "_").removesuffix("_SHA256" if "POLY1305" in cipher else "")
    exchange = "" if exchange == "RSA" else f"{exchange}-"
    return f"{exchange}{cipher}".replace("_", "-")
