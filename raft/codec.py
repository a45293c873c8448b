"""Messages and hard state as bytes: a kind, the sender, its term, and then the fields of that kind, all big-endian.

The upper four bits of the first byte are the version of the format, the lower four the kind. Version 0 is all there is.

Entries carry no index: they follow `prev_index` one by one. Decoding checks everything that a node relies on, and
raises `MessageCorrupt` for whatever is not a message; it never reads past the bytes it was given.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

from tidemark.raft.configuration import Configuration
from tidemark.raft.entry import Entry, HardState, Kind
from tidemark.raft.errors import MessageCorrupt, UnknownVersion
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

VERSION: Final = 0
TERM_MAX: Final = (1 << 56) - 1  # as far as the journal can count

_HEAD = struct.Struct(">BIQ")  # version and kind, sender, term
_VERSION_SHIFT: Final = 4
_KIND_MASK: Final = (1 << _VERSION_SHIFT) - 1
_PRE_VOTE = struct.Struct(">QQ")
_PRE_VOTE_RESPONSE = struct.Struct(">?Q")
_VOTE = struct.Struct(">QQ?")
_VOTE_RESPONSE = struct.Struct(">?")
_APPEND = struct.Struct(">QQQQI")
_ENTRY = struct.Struct(">BQI")
_ACCEPTED = struct.Struct(">QQ")
_REJECTED = struct.Struct(">QQQQ")
_SNAPSHOT = struct.Struct(">QQQQQII")
_SNAPSHOT_RESPONSE = struct.Struct(">QQ?Q")
_HARD_STATE = struct.Struct(">8sIQq")  # magic, CRC of the rest, term, vote (-1: none)
_HARD_STATE_MAGIC: Final = b"TIDEHST1"  # the last byte is the version of the format
_CRC_END: Final = 12

_KINDS: Final[list[type[Message]]] = [
    RequestPreVote,
    PreVoteResponse,
    RequestVote,
    VoteResponse,
    AppendEntries,
    AppendAccepted,
    AppendRejected,
    InstallSnapshot,
    SnapshotResponse,
    TimeoutNow,
]
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS, start=1)}


def encode(message: Message) -> bytes:
    first = VERSION << _VERSION_SHIFT | _NUMBERS[type(message)]
    return _HEAD.pack(first, message.sender, message.term) + _body(message)


def _body(message: Message) -> bytes:
    match message:
        case RequestPreVote():
            return _PRE_VOTE.pack(message.last_index, message.last_term)
        case PreVoteResponse():
            return _PRE_VOTE_RESPONSE.pack(message.granted, message.asked_term)
        case RequestVote():
            return _VOTE.pack(message.last_index, message.last_term, message.forced)
        case VoteResponse():
            return _VOTE_RESPONSE.pack(message.granted)
        case AppendEntries():
            return _append_body(message)
        case AppendAccepted():
            return _ACCEPTED.pack(message.match_index, message.round)
        case AppendRejected():
            return _REJECTED.pack(message.prev_index, message.conflict_index, message.conflict_term, message.round)
        case InstallSnapshot():
            return _snapshot_body(message)
        case SnapshotResponse():
            return _SNAPSHOT_RESPONSE.pack(message.index, message.offset, message.installed, message.round)
        case TimeoutNow():
            return b""


def _append_body(message: AppendEntries) -> bytes:
    head = _APPEND.pack(
        message.prev_index, message.prev_term, message.commit_index, message.round, len(message.entries)
    )
    parts = [head]
    for entry in message.entries:
        parts += (_ENTRY.pack(entry.kind, entry.term, len(entry.payload)), entry.payload)
    return b"".join(parts)


def _snapshot_body(message: InstallSnapshot) -> bytes:
    configuration = message.configuration.encode()
    head = _SNAPSHOT.pack(
        message.index,
        message.index_term,
        message.offset,
        message.total,
        message.round,
        len(configuration),
        len(message.data),
    )
    return head + configuration + message.data


def decode(data: bytes) -> Message:
    try:
        first, sender, term = _HEAD.unpack_from(data)
        version, number = first >> _VERSION_SHIFT, first & _KIND_MASK
        if version > VERSION:
            raise UnknownVersion(f"a message of node {sender}", version=version, newest=VERSION)
        read = _READERS.get(number)
        if read is None:
            raise MessageCorrupt(f"no message is of kind {number}")
        if term > TERM_MAX:
            raise MessageCorrupt(f"node {sender} names term {term}, and there are only {TERM_MAX}")
        return read(sender, term, data)
    except struct.error as error:
        raise MessageCorrupt(f"a message of {len(data)} bytes is cut short") from error


def _fields(layout: struct.Struct, data: bytes) -> tuple[int, ...]:
    """The fields of a message that has no more than these."""
    _expect_end(_HEAD.size + layout.size, data)
    return layout.unpack_from(data, _HEAD.size)


def _expect_end(position: int, data: bytes) -> None:
    if position != len(data):
        raise MessageCorrupt(f"a message of {position} bytes comes in {len(data)}")


def _pre_vote(sender: int, term: int, data: bytes) -> Message:
    last_index, last_term = _fields(_PRE_VOTE, data)
    return RequestPreVote(sender=sender, term=term, last_index=last_index, last_term=last_term)


def _pre_vote_response(sender: int, term: int, data: bytes) -> Message:
    granted, asked_term = _fields(_PRE_VOTE_RESPONSE, data)
    return PreVoteResponse(sender=sender, term=term, granted=bool(granted), asked_term=asked_term)


def _vote(sender: int, term: int, data: bytes) -> Message:
    last_index, last_term, forced = _fields(_VOTE, data)
    return RequestVote(sender=sender, term=term, last_index=last_index, last_term=last_term, forced=bool(forced))


def _vote_response(sender: int, term: int, data: bytes) -> Message:
    (granted,) = _fields(_VOTE_RESPONSE, data)
    return VoteResponse(sender=sender, term=term, granted=bool(granted))


def _append(sender: int, term: int, data: bytes) -> Message:
    prev_index, prev_term, commit_index, round_, count = _APPEND.unpack_from(data, _HEAD.size)
    position = _HEAD.size + _APPEND.size
    if count * _ENTRY.size > len(data) - position:
        raise MessageCorrupt(f"{count} entries cannot fit into {len(data)} bytes")
    entries, least_term = [], prev_term
    for index in range(prev_index + 1, prev_index + 1 + count):
        entry, position = _entry(data, position, index)
        if not least_term <= entry.term <= term:
            raise MessageCorrupt(f"entry {index} of term {entry.term} follows term {least_term} in term {term}")
        least_term = entry.term
        entries.append(entry)
    _expect_end(position, data)
    return AppendEntries(
        sender=sender,
        term=term,
        prev_index=prev_index,
        prev_term=prev_term,
        commit_index=commit_index,
        round=round_,
        entries=tuple(entries),
    )


def _entry(data: bytes, position: int, index: int) -> tuple[Entry, int]:
    kind, term, length = _ENTRY.unpack_from(data, position)
    start = position + _ENTRY.size
    end = start + length
    if kind > max(Kind) or end > len(data):
        raise MessageCorrupt(f"entry {index} does not fit its message")
    payload = bytes(data[start:end])
    if kind == Kind.CONFIGURATION:
        Configuration.decode(payload)  # a node takes it into force at once, so it is checked at the door
    return Entry(term, index, payload, Kind(kind)), end


def _accepted(sender: int, term: int, data: bytes) -> Message:
    match_index, round_ = _fields(_ACCEPTED, data)
    return AppendAccepted(sender=sender, term=term, match_index=match_index, round=round_)


def _rejected(sender: int, term: int, data: bytes) -> Message:
    prev_index, conflict_index, conflict_term, round_ = _fields(_REJECTED, data)
    return AppendRejected(
        sender=sender,
        term=term,
        prev_index=prev_index,
        conflict_index=conflict_index,
        conflict_term=conflict_term,
        round=round_,
    )


def _snapshot(sender: int, term: int, data: bytes) -> Message:
    head = _SNAPSHOT.unpack_from(data, _HEAD.size)
    index, index_term, offset, total, round_, configuration_bytes, data_bytes = head
    start = _HEAD.size + _SNAPSHOT.size
    middle = start + configuration_bytes
    _expect_end(middle + data_bytes, data)
    if index_term > term:
        raise MessageCorrupt(f"a snapshot of term {index_term} comes in term {term}")
    if offset + data_bytes > total:
        raise MessageCorrupt(f"a chunk at {offset} of {data_bytes} bytes exceeds its snapshot of {total}")
    return InstallSnapshot(
        sender=sender,
        term=term,
        index=index,
        index_term=index_term,
        configuration=Configuration.decode(bytes(data[start:middle])),
        offset=offset,
        total=total,
        data=bytes(data[middle:]),
        round=round_,
    )


def _snapshot_response(sender: int, term: int, data: bytes) -> Message:
    index, offset, installed, round_ = _fields(_SNAPSHOT_RESPONSE, data)
    return SnapshotResponse(
        sender=sender, term=term, index=index, offset=offset, installed=bool(installed), round=round_
    )


def _timeout_now(sender: int, term: int, data: bytes) -> Message:
    _expect_end(_HEAD.size, data)
    return TimeoutNow(sender=sender, term=term)


_READERS: Final[dict[int, Callable[[int, int, bytes], Message]]] = dict(
    enumerate(
        [
            _pre_vote,
            _pre_vote_response,
            _vote,
            _vote_response,
            _append,
            _accepted,
            _rejected,
            _snapshot,
            _snapshot_response,
            _timeout_now,
        ],
        start=1,
    )
)


def encode_hard_state(state: HardState) -> bytes:
    body = struct.pack(">Qq", state.term, -1 if state.vote is None else state.vote)
    return _HARD_STATE_MAGIC + struct.pack(">I", zlib.crc32(body)) + body


def decode_hard_state(data: bytes) -> HardState:
    if len(data) != _HARD_STATE.size:
        raise MessageCorrupt(f"a hard state is {_HARD_STATE.size} bytes, not {len(data)}")
    magic, crc, term, vote = _HARD_STATE.unpack(data)
    if magic != _HARD_STATE_MAGIC and magic[:-1] == _HARD_STATE_MAGIC[:-1] and magic[-1:].isdigit():
        raise UnknownVersion("the hard state", version=int(magic[-1:]), newest=1)
    if magic != _HARD_STATE_MAGIC or crc != zlib.crc32(data[_CRC_END:]) or vote < -1:
        raise MessageCorrupt("the hard state is damaged: its checksum does not match")
    return HardState(term=term, vote=None if vote == -1 else vote)
