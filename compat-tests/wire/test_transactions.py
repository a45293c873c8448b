"""Transactions by hand: each wrong request gets Apache Kafka's code in every version, and changes nothing.

Each expectation was Apache Kafka 4.3.1's answer first (`--broker=kafka`).
"""

from __future__ import annotations

from typing import Any

import pytest
from harness.batches import batch_of
from harness.errors import Error
from harness.requests import end_offset, produce
from harness.topic import Topic
from harness.transactions import (
    TRANSACTION,
    UNKNOWN_ID,
    WRONG,
    Identity,
    Wrong,
    find_coordinator,
    init,
    new_identity,
    wrong_identity,
)
from harness.wire import Wire

MAX_TIMEOUT_MS = 900_000

# -- InitProducerId ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_bumps_the_epoch_in_every_version(wire: Wire, version: int) -> None:
    one = new_identity(wire, version=version)
    answer = init(wire, one.transactional_id, version=version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, one.producer_id, one.epoch + 1)


@pytest.mark.parametrize("timeout_ms", [-1, 0, MAX_TIMEOUT_MS + 1, 2**31 - 1])
@pytest.mark.parametrize("version", range(6))
def test_time_outs_beyond_the_limits_are_refused(producer: Identity, version: int, timeout_ms: int) -> None:
    before = producer.described()
    answer = init(producer.wire, producer.transactional_id, version=version, transaction_timeout_ms=timeout_ms)
    assert answer.error_code == Error.INVALID_TRANSACTION_TIMEOUT
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert producer.described() == before


def test_the_longest_time_out_is_accepted(wire: Wire) -> None:
    new_identity(wire, transaction_timeout_ms=MAX_TIMEOUT_MS)


def test_an_empty_transactional_id_is_refused(wire: Wire) -> None:
    assert init(wire, "").error_code == Error.INVALID_REQUEST


HALF_KNOWN = {"id without epoch": {"producer_id": 5}, "epoch without id": {"producer_epoch": 5}}


@pytest.mark.parametrize("half", HALF_KNOWN.values(), ids=HALF_KNOWN.keys())
def test_half_an_identity_is_refused(producer: Identity, half: dict[str, int]) -> None:
    before = producer.described()
    assert init(producer.wire, producer.transactional_id, **half).error_code == Error.INVALID_REQUEST
    assert producer.described() == before


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("shift", [(1_000_000, 0), (0, -1), (0, 1)], ids=["another id", "older epoch", "newer epoch"])
def test_recovery_with_a_wrong_identity_is_refused(producer: Identity, version: int, shift: tuple[int, int]) -> None:
    before = producer.described()
    claimed = {"producer_id": producer.producer_id + shift[0], "producer_epoch": producer.epoch + shift[1]}
    answer = init(producer.wire, producer.transactional_id, version=version, **claimed)
    expected = Error.PRODUCER_FENCED if version >= 4 else Error.INVALID_PRODUCER_EPOCH
    assert Error(answer.error_code) == expected
    assert producer.described() == before


@pytest.mark.parametrize("version", [3, 4, 5])
def test_recovery_with_the_right_identity_bumps_once(producer: Identity, version: int) -> None:
    claimed = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    for _ in range(2):  # the same question again, as after a lost answer
        answer = init(producer.wire, producer.transactional_id, version=version, **claimed)
        assert (answer.error_code, answer.producer_epoch) == (0, producer.epoch + 1)


# -- AddPartitionsToTxn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_a_producer_does_not_add_internal_topics(producer: Identity, made: Topic, internal: str) -> None:
    codes = producer.add({internal: [0], made.name: [0]})
    assert codes == {(internal, 0): Error.TOPIC_AUTHORIZATION_FAILED, (made.name, 0): Error.OPERATION_NOT_ATTEMPTED}


@pytest.mark.parametrize("version", range(4))
@wrong_identity
def test_partitions_of_a_wrong_identity_are_not_added(
    producer: Identity, made: Topic, wrong: Wrong, error: Error, error_before: Error, version: int
) -> None:
    before = producer.described()
    codes = wrong(producer).add({made.name: [0]}, version=version)
    assert codes == {(made.name, 0): error if version >= 2 else error_before}
    assert producer.described() == before


@pytest.mark.parametrize("version", range(4))
def test_one_unknown_partition_keeps_all_from_being_added(producer: Identity, made: Topic, version: int) -> None:
    before = producer.described()
    codes = producer.add({made.name: [0, 7], "no-such-topic": [0]}, version=version)
    assert codes == {
        (made.name, 0): Error.OPERATION_NOT_ATTEMPTED,
        (made.name, 7): Error.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.described() == before


@pytest.mark.parametrize("version", range(4))
def test_added_partitions_are_there_in_every_version(producer: Identity, made: Topic, version: int) -> None:
    for _ in range(2):
        assert producer.add({made.name: [0]}, version=version) == {(made.name, 0): Error.NONE}
    told = producer.described()
    assert (told["state"], told["partitions"]) == ("Ongoing", [(made.name, 0)])


@pytest.mark.parametrize("version", [4, 5])
def test_verification_of_a_partition_that_is_not_added(producer: Identity, made: Topic, version: int) -> None:
    before = producer.described()
    assert producer.verify({made.name: [0]}, version=version) == {(made.name, 0): Error.TRANSACTION_ABORTABLE}
    assert producer.described() == before


@pytest.mark.parametrize("version", [4, 5])
@wrong_identity
def test_verification_of_a_wrong_identity(
    producer: Identity, made: Topic, wrong: Wrong, error: Error, error_before: Error, version: int
) -> None:
    producer.add({made.name: [0]})
    assert wrong(producer).verify({made.name: [0]}, version=version) == {(made.name, 0): error}
    assert producer.verify({made.name: [0]}, version=version) == {(made.name, 0): Error.NONE}


# -- Produce -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 12))
def test_a_write_to_a_partition_that_is_not_in_the_transaction(producer: Identity, made: Topic, version: int) -> None:
    error = Error.TRANSACTION_ABORTABLE if version >= 11 else Error.INVALID_TXN_STATE
    before = producer.described()
    assert producer.send(made.name, version=version) == error
    assert end_offset(producer.wire, made.name) == 0
    assert producer.described() == before


def test_a_write_adds_its_partition_from_version_12_on(producer: Identity, made: Topic) -> None:
    assert producer.send(made.name, version=12) == Error.NONE
    assert producer.described()["partitions"] == [(made.name, 0)]


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (WRONG["unknown id"][0], Error.INVALID_PRODUCER_ID_MAPPING),
        (WRONG["another producer id"][0], Error.INVALID_PRODUCER_ID_MAPPING),
        (WRONG["an older epoch"][0], Error.INVALID_PRODUCER_EPOCH),
        (WRONG["a newer epoch"][0], Error.INVALID_PRODUCER_EPOCH),
    ],
    ids=[name for name in WRONG if name != "no id"],
)
def test_a_write_of_a_wrong_identity(producer: Identity, made: Topic, wrong: Wrong, error: Error, version: int) -> None:
    before = producer.described()
    assert wrong(producer).send(made.name, version=version) == error
    assert end_offset(producer.wire, made.name) == 0
    assert producer.described() == before


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_late_write_with_the_epoch_of_an_ended_transaction(producer: Identity, made: Topic, version: int) -> None:
    assert producer.send(made.name, version=12) == Error.NONE
    ended = producer.end(commit=True, version=5)
    assert (ended.error_code, ended.producer_epoch) == (0, producer.epoch + 1)
    producer.wait_until("CompleteCommit")
    size = end_offset(producer.wire, made.name)
    assert producer.send(made.name, sequence=1, version=version) == Error.INVALID_PRODUCER_EPOCH
    assert end_offset(producer.wire, made.name) == size


# -- EndTxn --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@wrong_identity
def test_a_wrong_identity_ends_nothing(
    producer: Identity, made: Topic, wrong: Wrong, error: Error, error_before: Error, version: int
) -> None:
    producer.add({made.name: [0]})
    before = producer.described()
    for commit in (True, False):
        answer = wrong(producer).end(commit=commit, version=version)
        assert Error(answer.error_code) == (error if version >= 2 else error_before)
    assert producer.described() == before


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_that_was_not_begun_cannot_be_committed(producer: Identity, version: int) -> None:
    before = producer.described()
    assert Error(producer.end(commit=True, version=version).error_code) == Error.INVALID_TXN_STATE
    assert producer.described() == before


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_that_was_not_begun_cannot_be_aborted(producer: Identity, version: int) -> None:
    """By version 5 it can: a write that the coordinator never heard of may be on its way."""
    before = producer.described()
    assert Error(producer.end(commit=False, version=version).error_code) == Error.INVALID_TXN_STATE
    assert producer.described() == before


def test_by_version_5_an_abort_of_nothing_is_granted_with_a_new_epoch(producer: Identity) -> None:
    answer = producer.end(commit=False, version=5)
    assert (answer.error_code, answer.producer_id) == (0, producer.producer_id)
    assert answer.producer_epoch == producer.epoch + 1


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_end_may_be_repeated_but_not_turned_round(
    producer: Identity, made: Topic, version: int, commit: bool
) -> None:
    assert producer.add({made.name: [0]}) == {(made.name, 0): Error.NONE}
    first = producer.end(commit=commit, version=version)
    assert first.error_code == 0
    producer.wait_until("CompleteCommit" if commit else "CompleteAbort")
    done = producer.described()
    again = producer.end(commit=commit, version=version)
    assert again.error_code == 0
    if version >= 5:
        assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch)
    assert Error(producer.end(commit=not commit, version=version).error_code) == Error.INVALID_TXN_STATE
    assert producer.described() == done


# -- WriteTxnMarkers -----------------------------------------------------------------------------------------------


def write_marker(one: Identity, topic: str, *, coordinator_epoch: int = 0, version: int = 1, index: int = 0) -> Error:
    marker: dict[str, Any] = {
        "producer_id": one.producer_id, "producer_epoch": one.epoch, "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [index]}], "coordinator_epoch": coordinator_epoch,
        "transaction_version": 0,
    }  # fmt: skip
    answer = one.wire.call("WriteTxnMarkers", version, markers=[marker])
    return Error(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_with_an_old_epoch_is_refused(producer: Identity, made: Topic, version: int) -> None:
    assert producer.send(made.name, version=12) == Error.NONE
    size = end_offset(producer.wire, made.name)
    old = producer.but(epoch=producer.epoch - 1)
    assert write_marker(old, made.name, version=version) == Error.INVALID_PRODUCER_EPOCH
    assert end_offset(producer.wire, made.name) == size


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(producer: Identity, made: Topic, version: int) -> None:
    assert producer.send(made.name, version=12) == Error.NONE
    assert write_marker(producer, made.name, coordinator_epoch=5, version=version) == Error.NONE
    size = end_offset(producer.wire, made.name)
    assert (
        write_marker(producer, made.name, coordinator_epoch=4, version=version) == Error.TRANSACTION_COORDINATOR_FENCED
    )
    assert end_offset(producer.wire, made.name) == size


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_for_a_partition_that_does_not_exist(producer: Identity, made: Topic, version: int) -> None:
    assert write_marker(producer, made.name, index=9, version=version) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert write_marker(producer, "no-such-topic", version=version) == Error.UNKNOWN_TOPIC_OR_PARTITION


# -- and questions ---------------------------------------------------------------------------------------------------


def test_nobody_is_described(wire: Wire) -> None:
    find_coordinator(wire, UNKNOWN_ID, kind=TRANSACTION)
    nobody = Identity(wire=wire, transactional_id=UNKNOWN_ID, producer_id=1, epoch=0)
    assert nobody.described()["error"] == Error.TRANSACTIONAL_ID_NOT_FOUND


def test_a_transactional_batch_without_a_transactional_id(producer: Identity, made: Topic) -> None:
    records = batch_of(b"x", attributes=0x10, producer_id=producer.producer_id, producer_epoch=1, base_sequence=0)
    code = produce(producer.wire, made.name, records).error_code
    assert Error(code) == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_offset(producer.wire, made.name) == 0
