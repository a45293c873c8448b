"""A refusal that a client is told: Kafka's code, and a sentence for a person."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode


class Refused(Exception):
    def __init__(self, code: ErrorCode, message: str, *, record_indexes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.record_indexes = record_indexes  # which records of a batch are to blame (KIP-467)
        self.code = code
        self.message = message
