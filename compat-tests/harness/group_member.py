"""The one member of a classic group, by hand."""

from __future__ import annotations

from typing import Any

from harness.errors import Error
from harness.transactions import GROUP, Member, find_coordinator
from harness.waiting import eventually
from harness.wire import Wire

PROTOCOL = {"name": "range", "metadata": b""}
VERSION = 5


def join(wire: Wire, group: str, *, member_id: str = "", instance_id: str | None = None) -> Member:
    """Joins, leads and takes an empty assignment: afterwards the group is stable."""
    find_coordinator(wire, group, kind=GROUP)
    fields: dict[str, Any] = {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "group_instance_id": instance_id, "protocol_type": "consumer", "protocols": [PROTOCOL],
    }  # fmt: skip

    def ask(name: str) -> Any:
        answer = wire.call("JoinGroup", VERSION, **fields, member_id=name)
        return None if answer.error_code in (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR) else answer

    answer = eventually(lambda: ask(member_id), what="an answer to JoinGroup")
    if answer.error_code == Error.MEMBER_ID_REQUIRED:
        answer = ask(answer.member_id)
    assert answer.error_code == 0, answer
    member = Member(generation=answer.generation_id, member_id=answer.member_id, instance_id=instance_id)
    synced = wire.call(
        "SyncGroup", 3, group_id=group, generation_id=member.generation, member_id=member.member_id,
        group_instance_id=instance_id, assignments=[{"member_id": member.member_id, "assignment": b"x"}],
    )  # fmt: skip
    assert synced.error_code == 0, synced
    return member


def committed_offset(wire: Wire, group: str, topic: str, *, stable: bool = False) -> tuple[Error, int]:
    """The code and the offset (-1: none) of partition 0."""
    answer = wire.call(
        "OffsetFetch", 7, group_id=group, topics=[{"name": topic, "partition_indexes": [0]}], require_stable=stable
    )
    assert answer.error_code == 0, answer
    (partition,) = answer.topics[0].partitions
    return Error(partition.error_code), partition.committed_offset
