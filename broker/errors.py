"""A refusal that a client is told: Kafka's code, and a sentence for a person."""

from __future__ import annotations

from protocol.errors import ErrorCode


class Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
