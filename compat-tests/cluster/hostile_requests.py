"""What no client should send: lengths and headers that lie, votes of nobody, fetches of no replica, and small requests
that ask for much."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from harness.batches import batch_of
from harness.requests import NO_ID, creatable, fetch_fields, partition_to_fetch
from harness.wire import fill, message_class

RAFT_MESSAGE: Final = 32_000
RAFT_KINDS: Final = 10  # and one more, which is none
NO_MEMBER: Final = 77


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, 4) + b"evil"


def _announced(random: Random) -> bytes:
    """A length, and nothing behind it."""
    return struct.pack(">i", random.choice([100_000_000, 2**31 - 1, -1, 50_000_000])) + bytes(random.randrange(9))


def _garbage(random: Random) -> bytes:
    return _frame(random.randbytes(random.randrange(1, 3000)))


def _garbled_request(random: Random) -> bytes:
    """A good header, then what the API never saw. The keys from 32000 on are for nodes among themselves."""
    key = random.choice([*range(93), 32_000, 32_001, 32_002])
    return _frame(_header(key, random.randrange(0, 18)) + random.randbytes(random.randrange(0, 400)))


def _many(random: Random) -> bytes:
    """Arrays that claim a thousand million elements."""
    return _frame(_header(random.choice([1, 2, 3, 9, 19, 21]), 4) + struct.pack(">i", 2**30) * random.randrange(1, 50))


def _vote(random: Random) -> bytes:
    """A whole message of the quorum, of a stranger or in a voter's name, in a term that nobody has reached."""
    sender = random.choice([1, 2, 3, NO_MEMBER])
    term = random.choice([2**64 - 1, 2**56 - 1, 2**40, 1_000_000])
    body = random.choice([struct.pack(">QQ?", 2**40, 2**40, True), struct.pack(">QQQQI", 0, 0, 0, 1, 0), b""])
    data = struct.pack(">BIQ", random.randrange(RAFT_KINDS + 1), sender, term) + body
    message = struct.pack(">i", sender) + bytes([len(data) + 1]) + data + b"\0"
    return _frame(_header(RAFT_MESSAGE, 0) + b"\0" + message)


def _request(name: str, version: int, **values: Any) -> bytes:
    request = fill(message_class(f"{name}Request"), values, version=version)
    request.with_header(correlation_id=1, client_id="evil")
    return _frame(bytes(request.encode(header=True, version=version)))


def _as_a_replica(random: Random) -> bytes:
    """A fetch in a broker's name: it must not move a high watermark, nor end the broker's own session."""
    state = {"replica_id": random.choice([1, 2, 3, NO_MEMBER]), "replica_epoch": random.choice([-1, 0, 1])}
    offset = random.choice([0, 1 << 40])
    return _request("Fetch", 15, **fetch_fields(NO_ID, partition_to_fetch(0, offset), replica_state=state))


def _much_for_little(random: Random) -> bytes:
    named = [{"topic_id": NO_ID, "name": "chaos"}] * 300
    topics = [creatable(f"never-{number}", num_partitions=100_000) for number in range(5)]
    return random.choice(
        [
            _request("Metadata", 12, topics=named, allow_auto_topic_creation=False,
                     include_topic_authorized_operations=False),
            _request("CreateTopics", 7, topics=topics, timeout_ms=1000, validate_only=True),
            _request("DeleteRecords", 2, topics=[], timeout_ms=1000) * 40,
        ]
    )  # fmt: skip


def _into_internal_topics(random: Random) -> bytes:
    """In a transaction, too: one record there that nobody can read must not cost a coordinator."""
    topic = random.choice(["__consumer_offsets", "__transaction_state"])
    transactional_id = random.choice([None, "evil"])
    of_producer = (
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "attributes": 16} if transactional_id else {}
    )
    data = {"index": random.randrange(50), "records": batch_of(b"not a record of yours", **of_producer)}
    return _request(
        "Produce", 9, transactional_id=transactional_id, acks=-1, timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [data]}],
    )  # fmt: skip


HOSTILE: Sequence[Callable[[Random], bytes]] = (
    _announced,
    _garbage,
    _garbled_request,
    _many,
    _vote,
    _as_a_replica,
    _much_for_little,
    _into_internal_topics,
)
