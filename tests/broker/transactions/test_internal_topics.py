"""No client writes into the coordinators' own topics, in a transaction or outside."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.metadata.internal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidemark.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_a_transactional_write_to_an_internal_topic_is_refused(txn: Any, topic: str, version: int) -> None:
    producer = await txn.start("a")
    partitions = txn.node._replicas.table.topics[topic].partitions
    before = {index: partition.log.end_offset for index, partition in partitions.items()}
    if version < 12:
        await txn.add("a", producer, 0, 1, topic=topic)
        before = {index: partition.log.end_offset for index, partition in partitions.items()}
    for index in (0, 1):
        code = await txn.produce("a", producer, b"poison", topic=topic, partition=index, version=version)
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert partitions[index].log.end_offset == before[index]
    if version >= 12:  # it is not part of the transaction, either
        assert (await txn.describe("a")).topics == []


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_a_plain_write_to_an_internal_topic_is_refused(txn: Any, topic: str) -> None:
    code = await txn.produce(None, (-1, -1), b"poison", sequence=-1, topic=topic, transactional=False)
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await txn.start("a"))[1] == 0
