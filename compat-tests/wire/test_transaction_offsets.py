"""AddOffsetsToTxn and TxnOffsetCommit by hand: who may commit a group's offsets in a transaction, and who may not."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from harness.errors import Error
from harness.group_member import committed_offset, join
from harness.topic import Topic
from harness.transactions import GROUP, WRONG, Identity, Member, Wrong, find_coordinator, wrong_identity
from harness.waiting import eventually
from harness.wire import Wire

KNOWS_MEMBERS = 3  # KIP-447: from here on the request says who commits
ADDS_OFFSETS = 5  # KIP-890: AddOffsetsToTxn is not needed any more


@pytest.fixture
def group(wire: Wire) -> str:
    name = f"group-{uuid.uuid4().hex[:12]}"
    find_coordinator(wire, name, kind=GROUP)
    eventually(lambda: committed_offset(wire, name, "any") == (Error.NONE, -1), what="a group coordinator")
    return name


def begin(producer: Identity, group: str, *, version: int) -> None:
    if version < ADDS_OFFSETS:
        assert producer.add_offsets(group) == Error.NONE


# -- AddOffsetsToTxn -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added_in_every_version(producer: Identity, group: str, version: int) -> None:
    assert producer.add_offsets(group, version=version) == Error.NONE
    ((topic, _),) = producer.described()["partitions"]
    assert topic == "__consumer_offsets"


@pytest.mark.parametrize("version", range(5))
@wrong_identity
def test_offsets_of_a_wrong_identity_are_not_added(
    producer: Identity, group: str, wrong: Wrong, error: Error, error_before: Error, version: int
) -> None:
    before = producer.described()
    assert wrong(producer).add_offsets(group, version=version) == (error if version >= 2 else error_before)
    assert producer.described() == before


# -- TxnOffsetCommit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_seen_with_the_end_of_the_transaction(
    producer: Identity, made: Topic, group: str, version: int
) -> None:
    begin(producer, group, version=version)
    assert producer.commit_offset(group, made.name, 42, version=version) == Error.NONE
    assert committed_offset(producer.wire, group, made.name) == (Error.NONE, -1)
    assert committed_offset(producer.wire, group, made.name, stable=True)[0] == Error.UNSTABLE_OFFSET_COMMIT
    assert producer.end(commit=True).error_code == 0
    eventually(lambda: committed_offset(producer.wire, group, made.name, stable=True) == (Error.NONE, 42))


@pytest.mark.parametrize("version", range(ADDS_OFFSETS))
def test_offsets_that_were_not_added_are_refused(producer: Identity, made: Topic, group: str, version: int) -> None:
    before = producer.described()
    error = Error.TRANSACTION_ABORTABLE if version >= 4 else Error.INVALID_TXN_STATE
    assert producer.commit_offset(group, made.name, 42, version=version) == error
    assert producer.described() == before
    assert committed_offset(producer.wire, group, made.name, stable=True) == (Error.NONE, -1)


def test_by_version_5_a_commit_adds_the_offsets(producer: Identity, made: Topic, group: str) -> None:
    assert producer.commit_offset(group, made.name, 42, version=5) == Error.NONE
    ((topic, _),) = producer.described()["partitions"]
    assert topic == "__consumer_offsets"


@pytest.mark.parametrize("version", range(6))
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
def test_a_wrong_identity_commits_no_offsets(
    producer: Identity, made: Topic, group: str, wrong: Wrong, error: Error, version: int
) -> None:
    begin(producer, group, version=version)
    before = producer.described()
    assert wrong(producer).commit_offset(group, made.name, 42, version=version) == error
    assert producer.described() == before
    assert committed_offset(producer.wire, group, made.name, stable=True) == (Error.NONE, -1)


@pytest.mark.parametrize("version", range(6))
def test_a_group_must_have_a_name(producer: Identity, made: Topic, version: int) -> None:
    assert producer.commit_offset("", made.name, 42, version=version) == Error.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_topic_that_does_not_exist(producer: Identity, group: str, version: int) -> None:
    begin(producer, group, version=version)
    code = producer.commit_offset(group, "no-such-topic", 42, version=version)
    assert code == Error.UNKNOWN_TOPIC_OR_PARTITION


# What a member that was put out of its group may say of itself. The true one is at generation 1.
FENCED: dict[str, tuple[Callable[[Member], Member], Error]] = {
    "unknown member": (lambda one: Member(generation=one.generation, member_id="stranger"), Error.UNKNOWN_MEMBER_ID),
    "older generation": (
        lambda one: Member(generation=one.generation - 1, member_id=one.member_id), Error.ILLEGAL_GENERATION,
    ),
    "newer generation": (
        lambda one: Member(generation=one.generation + 1, member_id=one.member_id), Error.ILLEGAL_GENERATION,
    ),
    "generation without a member": (lambda one: Member(generation=one.generation), Error.UNKNOWN_MEMBER_ID),
    "unknown instance": (
        lambda one: Member(generation=one.generation, member_id=one.member_id, instance_id="nowhere"),
        Error.UNKNOWN_MEMBER_ID,
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", range(KNOWS_MEMBERS, 6))
@pytest.mark.parametrize(("fenced", "error"), FENCED.values(), ids=FENCED.keys())
def test_a_fenced_member_commits_no_offsets(
    producer: Identity,
    made: Topic,
    group: str,
    fenced: Callable[[Member], Member],
    error: Error,
    version: int,
) -> None:
    member = join(producer.wire, group)
    begin(producer, group, version=version)
    assert producer.commit_offset(group, made.name, 42, version=version, member=fenced(member)) == error
    assert committed_offset(producer.wire, group, made.name, stable=True) == (Error.NONE, -1)
    assert producer.commit_offset(group, made.name, 43, version=version, member=member) == Error.NONE


@pytest.mark.parametrize("version", range(KNOWS_MEMBERS, 6))
def test_a_static_member_that_was_replaced_commits_no_offsets(
    producer: Identity, made: Topic, group: str, version: int
) -> None:
    first = join(producer.wire, group, instance_id="static")
    second = join(producer.wire, group, instance_id="static")
    assert first.member_id != second.member_id
    begin(producer, group, version=version)
    code = producer.commit_offset(group, made.name, 42, version=version, member=first)
    assert code == Error.FENCED_INSTANCE_ID
    assert committed_offset(producer.wire, group, made.name, stable=True) == (Error.NONE, -1)
    assert producer.commit_offset(group, made.name, 43, version=version, member=second) == Error.NONE


@pytest.mark.parametrize("version", range(KNOWS_MEMBERS, 6))
def test_a_member_of_a_group_that_does_not_exist(producer: Identity, made: Topic, group: str, version: int) -> None:
    begin(producer, group, version=version)
    nobody = Member(generation=3, member_id="left-long-ago")
    assert producer.commit_offset(group, made.name, 42, version=version, member=nobody) == Error.ILLEGAL_GENERATION
    assert committed_offset(producer.wire, group, made.name, stable=True) == (Error.NONE, -1)


@pytest.mark.parametrize("version", range(6))
def test_a_commit_without_member_id_is_accepted_beside_members(
    producer: Identity, made: Topic, group: str, version: int
) -> None:
    """As producers did before KIP-447."""
    join(producer.wire, group)
    begin(producer, group, version=version)
    assert producer.commit_offset(group, made.name, 42, version=version) == Error.NONE
