"""A transactional producer by hand: every request of a transaction, in every version, with any field made wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from harness.batches import batch_of
from harness.errors import Error
from harness.requests import produce
from harness.waiting import eventually
from harness.wire import Wire

TRANSACTION = 1  # the key type of FindCoordinator
GROUP = 0
TRANSACTIONAL = 0x10  # the attribute of a batch
UNKNOWN_ID = "nobody-has-this-id"
NOT_YET = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who a group's member says it is; the default is nobody."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def find_coordinator(wire: Wire, key: str, *, kind: int) -> None:
    """Until there is one: the first question makes its topic."""

    def ask() -> bool:
        answer = wire.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[key])
        return bool(answer.coordinators[0].error_code == 0)

    eventually(ask, what=f"a coordinator of {key}")


def init(wire: Wire, transactional_id: str | None, *, version: int = 4, **changes: Any) -> Any:
    fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1, **changes}
    return wire.call("InitProducerId", version, transactional_id=transactional_id, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a producer calls itself. Its requests are answered with an error, never with an exception."""

    wire: Wire
    transactional_id: str
    producer_id: int
    epoch: int

    def but(self, **changes: Any) -> Identity:
        return replace(self, **changes)

    @property
    def _fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add(self, partitions: Mapping[str, Iterable[int]], *, version: int = 3) -> dict[tuple[str, int], Error]:
        """A client's form, up to version 3."""
        asked = [{"name": name, "partitions": list(indexes)} for name, indexes in partitions.items()]
        fields = {f"v3_and_below_{name}": value for name, value in self._fields.items()}
        answer = self.wire.call("AddPartitionsToTxn", version, **fields, v3_and_below_topics=asked)
        return _codes(answer.results_by_topic_v3_and_below)

    def verify(
        self, partitions: Mapping[str, Iterable[int]], *, version: int = 5, only: bool = True
    ) -> dict[tuple[str, int], Error]:
        """A broker's form, from version 4 on; it may also add."""
        asked = [{"name": name, "partitions": list(indexes)} for name, indexes in partitions.items()]
        one = {**self._fields, "verify_only": only, "topics": asked}
        answer = self.wire.call("AddPartitionsToTxn", version, transactions=[one])
        assert answer.error_code == 0, answer
        (result,) = answer.results_by_transaction
        return _codes(result.topic_results)

    def add_offsets(self, group: str, *, version: int = 3) -> Error:
        return Error(self.wire.call("AddOffsetsToTxn", version, **self._fields, group_id=group).error_code)

    def commit_offset(
        self, group: str, topic: str, offset: int, *, version: int = 3, member: Member | None = None, partition: int = 0
    ) -> Error:
        who = member or Member()
        asked = {
            "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": "",
        }  # fmt: skip
        answer = self.wire.call(
            "TxnOffsetCommit", version, **self._fields, group_id=group, generation_id=who.generation,
            member_id=who.member_id, group_instance_id=who.instance_id,
            topics=[{"name": topic, "partitions": [asked]}],
        )  # fmt: skip
        return Error(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool, version: int = 3) -> Any:
        return self.wire.call("EndTxn", version, **self._fields, committed=commit)

    def send(self, topic: str, *, sequence: int = 0, version: int = 9, partition: int = 0) -> Error:
        records = batch_of(
            b"value", attributes=TRANSACTIONAL, producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=sequence,
        )  # fmt: skip
        answer = produce(
            self.wire, topic, records, version=version, partition=partition, transactional_id=self.transactional_id
        )
        return Error(answer.error_code)

    def described(self) -> dict[str, Any]:
        """What the coordinator knows, without its times."""
        (state,) = self.wire.call(
            "DescribeTransactions", 0, transactional_ids=[self.transactional_id]
        ).transaction_states
        return {
            "error": Error(state.error_code),
            "state": state.transaction_state,
            "producer": (state.producer_id, state.producer_epoch),
            "partitions": sorted((topic.topic, index) for topic in state.topics for index in topic.partitions),
        }

    def wait_until(self, state: str) -> None:
        eventually(lambda: self.described()["state"] == state, what=f"{self.transactional_id} is {state}")


def new_identity(wire: Wire, **changes: Any) -> Identity:
    transactional_id = f"txn-{uuid.uuid4().hex[:12]}"
    find_coordinator(wire, transactional_id, kind=TRANSACTION)

    def ask() -> Any:
        answer = init(wire, transactional_id, **changes)
        return answer if answer.error_code not in NOT_YET else None

    answer = eventually(ask, what="a transactional producer")
    assert answer.error_code == 0, answer
    return Identity(
        wire=wire, transactional_id=transactional_id, producer_id=answer.producer_id, epoch=answer.producer_epoch
    )


def _codes(topics: Any) -> dict[tuple[str, int], Error]:
    return {
        (topic.name, result.partition_index): Error(result.partition_error_code)
        for topic in topics
        for result in topic.results_by_partition
    }


Wrong = Callable[[Identity], Identity]

# How a producer may be wrong about itself, and what it is told: in versions that know PRODUCER_FENCED, and before.
WRONG: dict[str, tuple[Wrong, Error, Error]] = {
    "unknown id": (
        lambda one: one.but(transactional_id=UNKNOWN_ID),
        Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING,
    ),
    "another producer id": (
        lambda one: one.but(producer_id=one.producer_id + 1_000_000),
        Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING,
    ),
    "an older epoch": (
        lambda one: one.but(epoch=one.epoch - 1),
        Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH,
    ),
    "a newer epoch": (
        lambda one: one.but(epoch=one.epoch + 1),
        Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH,
    ),
    "no id": (lambda one: one.but(transactional_id=""), Error.INVALID_REQUEST, Error.INVALID_REQUEST),
}  # fmt: skip
wrong_identity = pytest.mark.parametrize(("wrong", "error", "error_before"), WRONG.values(), ids=WRONG.keys())
