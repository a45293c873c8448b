"""A partition that is followed: where it truncates, and what it tells its readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tidemark.broker.config import BrokerConfig, TopicConfig
from tidemark.broker.replication import flushing
from tidemark.broker.replication.followed import Followed
from tidemark.protocol.records import Record, build_batch
from tidemark.storage import Log, LogConfig, LogOffline, truncation
from tidemark.storage.segment import Segment


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """Ten records of leader epoch 3, of which the first six are committed."""
    log = Log.open(str(tmp_path / "t-0"), config=LogConfig(), clean=True)
    for offset in range(10):
        log.append_replicated(build_batch([Record(value=b"v")], base_offset=offset, leader_epoch=3))
    with ThreadPoolExecutor(1) as executor:
        yield Followed(
            topic="t",
            topic_id=bytes(16),
            index=0,
            leader=1,
            leader_epoch=4,
            log=log,
            config=TopicConfig.resolve(BrokerConfig(), {}),
            executor=executor,
            high_watermark=6,
        )
    log.close(clean=False)


async def test_a_leader_that_knows_nothing_of_our_epochs_leaves_us_what_is_committed(followed: Followed) -> None:
    await followed.truncate_to_leader(epoch=-1, end_offset=-1)
    assert (followed.log.end_offset, followed.high_watermark) == (6, 6)


@pytest.mark.parametrize(("epoch", "end_offset", "end"), [(3, 8, 8), (3, 20, 10)])
async def test_what_the_leader_does_not_have_is_dropped(
    followed: Followed, epoch: int, end_offset: int, end: int
) -> None:
    await followed.truncate_to_leader(epoch=epoch, end_offset=end_offset)
    assert (followed.log.end_offset, followed.high_watermark) == (end, 6)


async def test_a_leader_that_lost_what_was_committed_is_followed_all_the_same(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    await followed.truncate_to_leader(epoch=3, end_offset=4)
    assert (followed.log.end_offset, followed.high_watermark) == (4, 4)
    assert "its leader lost them" in caplog.text


async def test_a_truncation_keeps_nobody_waiting_and_says_when_another_may_have_the_log(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    real = truncation.truncate_to

    def truncate_to(log: Log, offset: int) -> bool:
        begun.set()
        assert goes_on.wait(10)
        return real(log, offset)

    monkeypatch.setattr(truncation, "truncate_to", truncate_to)
    done = followed.truncate_to_leader(epoch=3, end_offset=8)
    assert begun.wait(10), "it is under way, and we are here"
    assert followed.is_truncating
    assert not done.done()
    followed.retire()
    assert followed.is_truncating, "whoever is to have the log next can see that it must wait"
    goes_on.set()
    await followed.truncated
    assert done.done()
    assert followed.log.end_offset == 8
    assert not followed.is_truncating


async def test_no_sync_begins_or_ends_while_the_log_is_truncated(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "RETRY_SECONDS", 0.001)
    goes_on = threading.Event()
    real = truncation.truncate_to
    touched: list[str] = []

    def truncate_to(log: Log, offset: int) -> bool:
        assert goes_on.wait(10)
        return real(log, offset)

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **named: Any) -> Any:
            touched.append(f"{name} {followed.is_truncating}")
            return call(*arguments, **named)

        return noting

    monkeypatch.setattr(truncation, "truncate_to", truncate_to)
    monkeypatch.setattr(Log, "begin_flush", noted("begin", Log.begin_flush))
    monkeypatch.setattr(Log, "finish_flush", noted("finish", Log.finish_flush))
    followed._commit.request()
    done = followed.truncate_to_leader(epoch=3, end_offset=8)  # after the sync, which the only thread is at
    await asyncio.sleep(0.02)
    assert touched == ["begin False"]
    goes_on.set()
    await done
    async with asyncio.timeout(10):
        while followed.log.recovery_point != 8:
            await asyncio.sleep(0.001)
    assert set(touched) == {"begin False", "finish False"}


async def test_a_truncation_that_fails_says_why(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "truncate", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(LogOffline, match="Input/output"):
        await followed.truncate_to_leader(epoch=3, end_offset=8)
    assert not followed.is_truncating


async def test_an_empty_log_begins_anew_where_its_leader_does(followed: Followed) -> None:
    await followed.restart_at(100)
    assert (followed.log.start_offset, followed.log.end_offset, followed.high_watermark) == (100, 100, 100)
    assert not followed.must_sync


def test_one_reader_that_fails_does_not_keep_others_from_hearing(followed: Followed) -> None:
    class Reader:
        def __init__(self, *, fails: bool) -> None:
            self.fails = fails
            self.heard = 0

        def readable(self, _partition: Any) -> None:
            self.heard += 1
            if self.fails:
                raise RuntimeError("on purpose")

    readers = [Reader(fails=number % 2 == 0) for number in range(6)]
    for each in readers:
        followed.watchers.add(each)
    followed.apply_leader_offsets(high_watermark=8, log_start_offset=0)
    assert followed.high_watermark == 8
    assert [reader.heard for reader in readers] == [1] * 6
