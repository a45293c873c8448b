from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from transactional_client import Transactional


@pytest.fixture
def speak(connect: Any) -> Callable[[Any], Awaitable[Transactional]]:
    async def open_client(node: Any) -> Transactional:
        return Transactional(await connect(node))

    return open_client


@pytest.fixture
async def txn(start_node: Any, speak: Any) -> Transactional:
    node = await start_node(
        transaction_state_log_num_partitions="2",
        offsets_topic_num_partitions="2",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="100",
    )
    talker: Transactional = await speak(node)
    talker.node = node
    await talker.client.create("t", 3)
    await talker.prepare()
    return talker
