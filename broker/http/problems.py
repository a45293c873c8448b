"""What went wrong, as a problem document (RFC 9457) that carries Kafka's name of the error."""

from __future__ import annotations

import json
from typing import Final

from tidemark.protocol.errors import ErrorCode

PROBLEM_TYPE: Final = "application/problem+json"
# What passes: nobody leads or answers yet, too few replicas, no room. The same request may be sent again.
PASSING: Final = frozenset((503, 504))
RETRY_AFTER: Final = ("Retry-After", "1")

REASONS: Final = {
    200: "OK",
    201: "Created",
    204: "No Content",
    207: "Multi-Status",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

STATUSES: Final[dict[ErrorCode, int]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: 409,
    ErrorCode.FENCED_INSTANCE_ID: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.FENCED_MEMBER_EPOCH: 409,
    ErrorCode.STALE_MEMBER_EPOCH: 409,
    ErrorCode.OFFSET_OUT_OF_RANGE: 416,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.GROUP_MAX_SIZE_REACHED: 429,
    ErrorCode.REQUEST_TIMED_OUT: 504,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: 503,
    ErrorCode.LEADER_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.NOT_COORDINATOR: 503,
    ErrorCode.NOT_CONTROLLER: 503,
    ErrorCode.BROKER_NOT_AVAILABLE: 503,
    ErrorCode.NOT_ENOUGH_REPLICAS: 503,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: 503,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
}


class Problem(Exception):
    """The request is answered with this instead. `headers` go with it."""

    def __init__(self, status: int, error: str, detail: str, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.detail = detail
        says_when = status not in PASSING or any(name == RETRY_AFTER[0] for name, _ in headers)
        self.headers = headers if says_when else (*headers, RETRY_AFTER)

    @classmethod
    def of(cls, code: int, detail: str | None = None, *, headers: tuple[tuple[str, str], ...] = ()) -> Problem:
        """By Kafka's error code. What is not in the table is the request's fault."""
        try:
            named = ErrorCode(code)
        except ValueError:
            return cls(500, "UNKNOWN_SERVER_ERROR", detail or f"An answer with the unknown error code {code}.")
        said = detail or f"{named.name.replace('_', ' ').capitalize()}."
        return cls(STATUSES.get(named, 400), named.name, said, headers=headers)

    def document(self) -> bytes:
        value = {
            "type": "about:blank",
            "title": REASONS.get(self.status, "Error"),
            "status": self.status,
            "error": self.error,
            "detail": self.detail,
        }
        return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def check(code: int, message: str | None = None) -> None:
    """Raises what an answer's error code says, if it says one."""
    if code:
        raise Problem.of(code, message)
