"""What a request names more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def repeated(items: Iterable[T]) -> set[T]:
    return {item for item, count in Counter(items).items() if count > 1}
