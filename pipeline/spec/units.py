"""Amounts as people write them: `128MB`, `5 minutes`."""

from __future__ import annotations

import re

BYTES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
SECONDS = {"ms": 0.001, "s": 1.0, "second": 1.0, "m": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0, "day": 86400.0}
_AMOUNT = re.compile(r"\s*(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    number, unit = _split(text, "a size such as 128MB")
    if unit and unit.lower() not in BYTES:
        raise ValueError(f"{text!r} is not a size such as 128MB")
    return int(number * BYTES[unit.lower() or "b"])


def parse_seconds(text: str) -> float:
    number, unit = _split(text, "a time such as '5 minutes'")
    unit = unit.lower()
    unit = unit if unit in SECONDS else unit.removesuffix("s")
    if unit and unit not in SECONDS:
        raise ValueError(f"{text!r} is not a time such as '5 minutes'")
    return number * SECONDS[unit or "s"]


def parse_share(text: str) -> float:
    """`5%`, or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a share such as 5%") from None
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a share between 0% and 100%")
    return share


def _split(text: str, wanted: str) -> tuple[float, str]:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not {wanted}")
    return float(found["number"]), found["unit"]
