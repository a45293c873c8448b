"""A node in the test's own event loop, and a connection to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Call = Callable[..., Awaitable[Any]]


@pytest.fixture
async def node(start_node: Any) -> Any:
    return await start_node(group_initial_rebalance_delay_ms=0)


@pytest.fixture
async def client(node: Any, connect: Any) -> Any:
    return await connect(node)
