"""Commits, their rules, and how they end."""

from typing import Any

import pytest

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.offset_delete import delete_offsets
from tidemark.broker.groups.offset_fetch import fetch
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue
from tidemark.broker.groups.shard import TOMBSTONES_PER_BATCH
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

RETENTION_MS = 60 * 60_000


@pytest.fixture
def driver(make_driver: Any) -> Any:
    return make_driver(offsets_retention_minutes=60)


def expire(driver: Any) -> None:
    for result in driver.shard.expire(driver.now_ms):
        driver.finish(result)


def forget_topics(driver: Any, *names: str) -> None:
    for result in driver.shard.forget_topics(set(names)):
        driver.finish(result)


def test_a_consumer_without_a_group_commits_and_makes_one(driver: Any) -> None:
    assert driver.commit(42) == ErrorCode.NONE
    assert driver.offsets() == {0: 42}
    assert (driver.group.state_name, driver.group.protocol_type_name) == ("Empty", "")
    driver.restart()
    assert driver.offsets() == {0: 42}
    assert driver.group.state_name == "Empty"


def test_members_commit_with_their_generation_only(driver: Any) -> None:
    [one] = driver.stable(1)
    assert driver.commit(1, member_id=one, generation=1) == ErrorCode.NONE
    assert driver.commit(2, member_id=one, generation=0) == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(2, member_id=one, generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(2, member_id="nobody", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(2) == ErrorCode.UNKNOWN_MEMBER_ID  # nobody's commit, while the group has members
    assert driver.commit(2, member_id=one, generation=1, instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.offsets() == {0: 1}


def test_a_generation_of_a_group_that_is_not_there_is_refused(driver: Any) -> None:
    assert driver.commit(1, member_id="m", generation=3, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert driver.commit(1, member_id="m", generation=3, version=9) == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.shard.groups == {}


def test_commits_are_taken_until_the_next_generation_forms(driver: Any) -> None:
    one, two = driver.stable(2)
    driver.join()
    assert driver.commit(5, member_id=one, generation=2) == ErrorCode.NONE  # before it joins again
    driver.join(one)
    driver.join(two)
    assert driver.commit(6, member_id=one, generation=3) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.commit(6, member_id=one, generation=2) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", [9, 10])
def test_topics_and_partitions_must_exist(driver: Any, version: int) -> None:
    by_id = version == 10
    unknown_topic = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.commit(1, topic="x", version=version) == unknown_topic
    assert driver.commit(1, partition=3, version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.commit(1, partition=-1, version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.commit(1, partition=2, version=version) == ErrorCode.NONE
    assert driver.offsets() == {2: 1}


def test_metadata_has_a_limit(driver: Any) -> None:
    assert driver.commit(1, metadata="m" * 4096) == ErrorCode.NONE
    assert driver.commit(2, metadata="m" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.offsets() == {0: 1}


def test_a_commit_that_cannot_be_written_changes_nothing(driver: Any) -> None:
    driver.commit(1)
    driver.fails = True
    assert driver.commit(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.offsets() == {0: 1}


def test_what_was_never_committed_is_minus_one(driver: Any) -> None:
    found = fetch(driver.shard, "nobody", {"t": [0, 7]})
    assert [(each.partition, each.offset, each.metadata) for each in found.topics["t"]] == [(0, -1, ""), (7, -1, "")]
    assert fetch(driver.shard, "nobody", None).topics == {}


def test_offsets_of_a_simple_group_expire_after_their_last_commit(driver: Any) -> None:
    driver.commit(1, partition=0)
    driver.advance(RETENTION_MS - 1)
    driver.commit(2, partition=1)
    expire(driver)
    assert driver.offsets() == {0: 1, 1: 2}
    driver.advance(1)
    expire(driver)
    assert driver.offsets() == {1: 2}
    driver.advance(RETENTION_MS)
    expire(driver)
    assert driver.shard.groups == {}
    driver.restart()
    assert driver.shard.groups == {}


def test_offsets_of_a_group_expire_after_its_last_member_left(driver: Any) -> None:
    [one] = driver.stable(1, session_ms=RETENTION_MS * 4)
    driver.commit(1, member_id=one, generation=1)
    driver.advance(RETENTION_MS * 2)
    expire(driver)
    assert driver.offsets() == {0: 1}
    driver.leave((one, None))
    driver.advance(RETENTION_MS - 1)
    expire(driver)
    assert driver.offsets() == {0: 1}
    driver.advance(1)
    expire(driver)
    assert driver.shard.groups == {}


def test_offsets_of_topics_that_nobody_subscribes_to_expire_while_the_group_lives(driver: Any) -> None:
    [one] = driver.stable(1, session_ms=RETENTION_MS * 4)
    driver.commit(1, member_id=one, generation=1)
    driver.commit(2, member_id=one, generation=1, topic="u")
    driver.advance(RETENTION_MS)
    expire(driver)
    assert (driver.offsets("t"), driver.offsets("u")) == ({0: 1}, {})


def test_a_commit_may_name_its_own_retention(driver: Any) -> None:
    driver.commit(1, version=4, retention_ms=1_000)
    driver.restart()
    driver.advance(999)
    expire(driver)
    assert driver.offsets() == {0: 1}
    driver.advance(1)
    expire(driver)
    assert driver.offsets() == {}


def test_offsets_go_with_their_topic(driver: Any) -> None:
    driver.commit(1, topic="t")
    driver.commit(2, topic="u")
    forget_topics(driver, "t")
    assert (driver.offsets("t"), driver.offsets("u")) == ({}, {0: 2})
    driver.restart()
    assert (driver.offsets("t"), driver.offsets("u")) == ({}, {0: 2})
    assert list(driver.shard.forget_topics({"t"})) == []


def test_topics_that_went_while_nobody_looked_are_found(driver: Any) -> None:
    driver.commit(1, topic="t")
    assert driver.shard.unknown_topics({"u": None}) == {"t"}


def deletion(topic: str, *partitions: int) -> OffsetDeleteRequest:
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])


def test_offsets_can_be_deleted_of_topics_that_are_not_read(driver: Any) -> None:
    [one] = driver.stable(1)
    driver.commit(1, member_id=one, generation=1)
    driver.commit(2, member_id=one, generation=1, topic="u")
    refused = driver.finish(delete_offsets(driver.shard, deletion("t", 0)))
    assert refused.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    done = driver.finish(delete_offsets(driver.shard, deletion("u", 0, 1)))
    assert [each.error_code for each in done.topics[0].partitions] == [0, 0]
    assert (driver.offsets("t"), driver.offsets("u")) == ({0: 1}, {})
    missing = driver.finish(delete_offsets(driver.shard, deletion("x", 0)))
    assert missing.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offsets_of_other_protocols_can_be_deleted_only_when_the_group_is_empty(driver: Any) -> None:
    [one] = driver.stable(1, protocol_type="connect")
    assert driver.finish(delete_offsets(driver.shard, deletion("t", 0))).error_code == ErrorCode.NON_EMPTY_GROUP
    driver.leave((one, None))
    assert driver.finish(delete_offsets(driver.shard, deletion("t", 0))).error_code == ErrorCode.NONE


def test_a_group_is_deleted_when_it_is_empty_and_with_it_its_offsets(driver: Any) -> None:
    [one] = driver.stable(1)
    driver.commit(1, member_id=one, generation=1)
    assert driver.finish(driver.shard.delete_group("g")) == ErrorCode.NON_EMPTY_GROUP
    driver.leave((one, None))
    assert driver.finish(driver.shard.delete_group("g")) == ErrorCode.NONE
    assert driver.finish(driver.shard.delete_group("g")) == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.offsets() == {}
    driver.restart()
    assert driver.shard.groups == {}
    assert driver.offsets() == {}


def commit_many(driver: Any, count: int) -> list[OffsetCommitKey]:
    """As in the log: of more partitions than the topics here have."""
    keys = [OffsetCommitKey(group="g", topic="t", partition=index) for index in range(count)]
    for key in keys:
        driver.shard.replay(CoordinatorRecord(key, OffsetCommitValue(offset=1, commit_timestamp=driver.now_ms)))
    return keys


def test_what_is_committed_anew_while_very_many_offsets_expire_stays_and_so_does_the_group(driver: Any) -> None:
    keys = commit_many(driver, 2 * TOMBSTONES_PER_BATCH)
    driver.advance(RETENTION_MS)
    expiring = driver.shard.expire(driver.now_ms)
    while driver.offsets().get(0) == 1:
        driver.finish(next(expiring))
    assert next(expiring) is None
    driver.shard.replay(CoordinatorRecord(keys[-1], OffsetCommitValue(offset=2, commit_timestamp=driver.now_ms)))
    for result in expiring:
        driver.finish(result)
    assert driver.offsets() == {keys[-1].partition: 2}
    assert "g" in driver.shard.groups


@pytest.mark.parametrize("count", [TOMBSTONES_PER_BATCH - 1, TOMBSTONES_PER_BATCH, TOMBSTONES_PER_BATCH + 1])
def test_a_group_goes_with_the_last_of_its_offsets(driver: Any, count: int) -> None:
    commit_many(driver, count)
    driver.advance(RETENTION_MS)
    expire(driver)
    assert driver.offsets() == {}
    assert driver.shard.groups == {}
    driver.restart()
    assert driver.shard.groups == {}


def test_a_group_whose_only_offsets_are_of_an_open_transaction_stays(driver: Any) -> None:
    """Or they would be committed for a group that does not exist, and that nobody could delete."""
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    driver.shard.replay_pending(7, CoordinatorRecord(key, OffsetCommitValue(offset=1, commit_timestamp=1)))
    driver.advance(RETENTION_MS)
    expire(driver)
    assert "g" in driver.shard.groups
    driver.shard.end_transaction(7, commit=True)
    expire(driver)
    assert driver.shard.groups == {}
