"""A hosted shard whose writes wait to be committed, and fail."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.config import BrokerConfig
from tidemark.broker.transactions.transaction_shard_host import RETRIES_LOGGED_MAX, TransactionShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.end_txn import EndTxnResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdResponse
from tidemark.storage import LogOffline


class SlowPartition:
    """Takes what is appended, and commits nothing until it fails."""

    topic, index, leader_epoch, high_watermark = "__transaction_state", 0, 0, 0

    def __init__(self) -> None:
        self.waiting: list[Callable[[Exception | None], None]] = []
        self._end = 0

    def append_internal(self, *_: Any) -> Any:
        self._end += 1
        return SimpleNamespace(last_offset=self._end - 1)

    def await_high_watermark(
        self, _offset: int, reached: Callable[[Exception | None], None], *, fails_below_min_isr: bool = False
    ) -> None:
        self.waiting.append(reached)

    def fail(self) -> None:
        for reached in self.waiting:
            reached(LogOffline("gone"))


@pytest.fixture
async def host() -> TransactionShardHost:
    partition: Any = SlowPartition()
    markers: Any = None
    return TransactionShardHost(partition, config=BrokerConfig(), markers=markers, now_ms=lambda: 1_000)


REFUSALS = [
    EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED),
    InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED),
    ErrorCode.NONE,
]


@pytest.mark.parametrize("answer", REFUSALS, ids=lambda one: type(one).__name__)
async def test_an_answer_that_waited_for_a_lost_write_keeps_its_kind(host: TransactionShardHost, answer: Any) -> None:
    """Even one without a record of its own: it may rest on what another request wrote."""
    told: list[Any] = []
    host.finish(host.shard.init("a", timeout_ms=1000, expected=None, new_id=7, now_ms=1_000))
    host.finish(answer).then(told.append)
    host.partition.fail()  # type: ignore[attr-defined]
    assert type(told[0]) is type(answer)
    assert (told[0] if isinstance(answer, ErrorCode) else told[0].error_code) == ErrorCode.NOT_COORDINATOR


class NoLeader:
    def write(self, *_: Any, **__: Any) -> ErrorCode:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_marker_that_is_retried_all_the_time_is_not_logged_all_the_time(
    host: TransactionShardHost, caplog: pytest.LogCaptureFixture
) -> None:
    markers: Any = NoLeader()
    host._markers = markers
    pending: Any = SimpleNamespace(marker=None, version=2, transactional_id="a")
    for _ in range(50):
        host._write(pending, ("t", 0))
    assert len([each for each in caplog.records if "is retried" in each.message]) == RETRIES_LOGGED_MAX
    host.close()
