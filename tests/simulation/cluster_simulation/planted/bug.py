"""What a planted bug is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    patches: Callable[[], Any]  # a context manager that puts it in
    faults: tuple[str, ...]  # groups or kinds of faults that bring it to light
    seeds: int  # it is found within so many
    workloads: tuple[str, ...] = ()
    mode: str = ""
    layout: str = ""
    without_one: str = ""
    seconds: float = 8.0
