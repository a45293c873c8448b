"""OffsetFetch: the committed offsets of a group, for some partitions or for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.broker.groups.records import OffsetCommitValue
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.errors import ErrorCode

Wanted = Mapping[str, Sequence[int]]


class Position(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error_code: ErrorCode = ErrorCode.NONE


class Positions(NamedTuple):
    error_code: ErrorCode
    topics: dict[str, list[Position]]


NO_OFFSET: Final = -1


def fetch(
    shard: GroupShard,
    group_id: str,
    wanted: Wanted | None,
    *,
    member_id: str | None = None,
    epoch: int = -1,
    stable: bool = False,
) -> Positions:
    """`wanted` is None for all. Partitions without a committed offset have offset -1, whether the group exists or not.

    With `stable`, so have partitions with pending transactional offsets (KIP-447).
    """
    group = shard.groups.get(group_id)
    code = ErrorCode.NONE if group is None else group.check_fetch(member_id=member_id, epoch=epoch)
    if code:
        return Positions(code, {})
    committed = shard.offsets.of_group(group_id)
    found = {
        topic: [_position(index, committed.get(topic, {}).get(index)) for index in indexes]
        for topic, indexes in (committed_partitions(shard, group_id) if wanted is None else wanted).items()
    }
    if stable and shard.offsets.has_pending(group_id):
        for topic, positions in found.items():
            positions[:] = [
                Position(each.partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if shard.offsets.is_pending(group_id, topic, each.partition)
                else each
                for each in positions
            ]
    return Positions(ErrorCode.NONE, found)


def committed_partitions(shard: GroupShard, group_id: str) -> dict[str, list[int]]:
    return {topic: list(partitions) for topic, partitions in shard.offsets.of_group(group_id).items()}


def _position(partition: int, value: OffsetCommitValue | None) -> Position:
    if value is None:
        return Position(partition, NO_OFFSET, -1, "")
    return Position(partition, value.offset, value.leader_epoch, value.metadata)
