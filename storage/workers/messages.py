"""How a broker and its worker processes talk: plain values, pickled, each behind its size."""

from __future__ import annotations

import pickle
from typing import IO

_SIZE_BYTES = 8


def write_message(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(len(data).to_bytes(_SIZE_BYTES, "big") + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> object:
    """None at the end of the stream."""
    size = stream.read(_SIZE_BYTES)
    data = stream.read(int.from_bytes(size, "big"))
    return pickle.loads(data) if data and len(data) == int.from_bytes(size, "big") else None
