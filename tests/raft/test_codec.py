"""Messages as bytes: what is written is read back, and nothing but `MessageCorrupt` comes of anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.raft import NO_DIRECTORY, Configuration, Entry, HardState, Kind, Member, MessageCorrupt
from tidemark.raft.codec import TERM_MAX, decode, decode_hard_state, encode, encode_hard_state
from tidemark.raft.messages import (
    AppendAccepted,
    AppendEntries,
    AppendRejected,
    InstallSnapshot,
    Message,
    PreVoteResponse,
    RequestPreVote,
    RequestVote,
    SnapshotResponse,
    TimeoutNow,
    VoteResponse,
)

ids = st.integers(0, 2**31 - 1)
numbers = st.integers(0, 2**63)
terms = st.integers(0, TERM_MAX)
head = {"sender": ids, "term": terms}
members = st.builds(
    Member,
    node_id=ids,
    is_voter=st.booleans(),
    detail=st.binary(max_size=20),
    directory_id=st.sampled_from((NO_DIRECTORY, b"a directory's id")),
)
configurations = st.lists(members, max_size=5, unique_by=lambda member: member.node_id).map(
    lambda found: Configuration(tuple(sorted(found, key=lambda member: member.node_id)))
)


@st.composite
def appends(draw: st.DrawFn) -> AppendEntries:
    entry_terms = sorted(draw(st.lists(st.integers(1, 50), max_size=5)))
    prev_index = draw(st.integers(0, 2**40))
    entries = []
    for index, term in enumerate(entry_terms, start=prev_index + 1):
        kind = draw(st.sampled_from(Kind))
        payload = draw(configurations).encode() if kind is Kind.CONFIGURATION else draw(st.binary(max_size=30))
        entries.append(Entry(term, index, payload, kind))
    return AppendEntries(
        sender=draw(ids),
        term=draw(st.integers(50, TERM_MAX)),
        prev_index=prev_index,
        prev_term=min(entry_terms, default=0),
        commit_index=draw(numbers),
        round=draw(numbers),
        entries=tuple(entries),
    )


@st.composite
def chunks(draw: st.DrawFn) -> InstallSnapshot:
    data, offset = draw(st.binary(max_size=40)), draw(st.integers(0, 1000))
    term = draw(terms)
    return InstallSnapshot(
        sender=draw(ids),
        term=term,
        index=draw(numbers),
        index_term=draw(st.integers(0, term)),
        configuration=draw(configurations),
        offset=offset,
        total=offset + len(data) + draw(st.integers(0, 1000)),
        data=data,
        round=draw(numbers),
    )


log_end = {"last_index": numbers, "last_term": numbers}
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(RequestPreVote, **head, **log_end),
    st.builds(PreVoteResponse, **head, granted=st.booleans(), asked_term=numbers),
    st.builds(RequestVote, **head, **log_end, forced=st.booleans()),
    st.builds(VoteResponse, **head, granted=st.booleans()),
    appends(),
    st.builds(AppendAccepted, **head, match_index=numbers, round=numbers),
    st.builds(AppendRejected, **head, prev_index=numbers, conflict_index=numbers, conflict_term=numbers, round=numbers),
    chunks(),
    st.builds(SnapshotResponse, **head, index=numbers, offset=numbers, installed=st.booleans(), round=numbers),
    st.builds(TimeoutNow, **head),
)


@given(messages)
def test_a_message_is_read_back_as_it_was_written(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages, st.data())
def test_a_message_cut_short_or_with_bytes_left_over_is_refused(message: Message, data: st.DataObject) -> None:
    encoded = encode(message)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(MessageCorrupt):
        decode(encoded[:end])
    with pytest.raises(MessageCorrupt):
        decode(encoded + b"\x00")


@given(messages, st.data())
def test_changed_bytes_give_a_message_or_message_corrupt(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MessageCorrupt):
        decode(bytes(encoded))


@given(st.binary(max_size=200))
def test_garbage_gives_a_message_or_message_corrupt(data: bytes) -> None:
    with contextlib.suppress(MessageCorrupt):
        decode(data)


@given(st.binary(max_size=60))
def test_garbage_gives_a_configuration_or_message_corrupt(data: bytes) -> None:
    with contextlib.suppress(MessageCorrupt):
        assert Configuration.decode(data).encode() == data


@given(configurations)
def test_a_configuration_is_read_back_as_it_was_written(configuration: Configuration) -> None:
    assert Configuration.decode(configuration.encode()) == configuration


def test_an_append_that_promises_more_entries_than_it_holds_costs_nothing() -> None:
    message = AppendEntries(sender=1, term=1, prev_index=0, prev_term=0, commit_index=0, round=0)
    encoded = bytearray(encode(message))
    encoded[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(MessageCorrupt, match="cannot fit"):
        decode(bytes(encoded))


def test_entries_whose_terms_go_back_are_refused() -> None:
    entries = (Entry(3, 1, b""), Entry(2, 2, b""))
    message = AppendEntries(sender=1, term=3, prev_index=0, prev_term=0, commit_index=0, round=0, entries=entries)
    with pytest.raises(MessageCorrupt, match="follows term 3"):
        decode(encode(message))


@given(st.builds(HardState, term=numbers, vote=st.none() | ids), st.data())
def test_a_hard_state_is_read_back_and_any_damage_is_seen(state: HardState, data: st.DataObject) -> None:
    encoded = bytearray(encode_hard_state(state))
    assert decode_hard_state(bytes(encoded)) == state
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MessageCorrupt):
        decode_hard_state(bytes(encoded))
