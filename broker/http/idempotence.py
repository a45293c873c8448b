"""What an `Idempotency-Key` makes of a request's batches, so that each is appended once.

The key stands for a producer that writes one batch to a partition, and the body for that batch's sequence: both are
hashes, and so the same for whoever gets the request again. The partition's own memory of producers, which is in its log
and thus on every replica, tells a repetition from something new, on whichever node leads by then.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from tidemark.broker.http.inputs import fail
from tidemark.broker.http.messages import HttpRequest
from tidemark.storage import KEYED_PRODUCER_ID_MIN

KEY_CHARS_MAX: Final = 200
SEQUENCES: Final = (1 << 31) - 20_000  # so that no batch reaches the number after which they begin again


class Producer(NamedTuple):
    """As whom a batch is written. The default: a producer that is not idempotent."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    choice: int | None = None  # decides the partition of records that have no key


ANY: Final = Producer()


def producer_of(request: HttpRequest, topic: str) -> Producer:
    """Raises Problem."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return ANY
    if not 0 < len(key) <= KEY_CHARS_MAX:
        raise fail(f"Idempotency-Key: it must have 1 to {KEY_CHARS_MAX} characters.")
    named = _hash("\0".join((str(request.principal), topic, key)).encode(errors="replace"))
    sequence = _hash(request.body) % SEQUENCES
    return Producer(KEYED_PRODUCER_ID_MIN | named >> 2, 0, sequence, named & 0x7FFFFFFF)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
