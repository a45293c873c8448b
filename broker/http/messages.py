"""A request and its answer, as values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from tidemark.broker.core.principal import ANONYMOUS, Principal
from tidemark.broker.core.sliced_work import Job, finished_in_background
from tidemark.broker.http.fair_turns import FairTurns
from tidemark.broker.http.held_answers import Holder, Uncounted
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.sliced_json import parsed, text_of, written

JSON: Final = "application/json"
QUERY_FIELDS_MAX: Final = 100
CLIENT_ID: Final = "http"
CLIENT_ID_CHARS_MAX: Final = 200

Authenticate = Callable[["HttpRequest"], Awaitable[Principal]]


async def by_connection(request: HttpRequest) -> Principal:
    """Who the connection says: a client's certificate, or nobody in particular."""
    return request.principal


@dataclass(kw_only=True)
class HttpRequest:
    method: str
    target: str  # path and query, as sent
    headers: Mapping[str, str]  # names in lower case; of several with one name, joined by commas
    body: bytes
    host: str  # where it comes from
    listener: str
    is_encrypted: bool = False
    takes_chunks: bool = True  # clients of HTTP/1.0 do not
    principal: Principal = ANONYMOUS
    authenticate: Authenticate = by_connection  # again, for what takes long
    meter: Any = None  # of the client's quotas, once it is known
    large_bodies: FairTurns | None = None  # those that are read at once
    holder: Holder = field(default_factory=Uncounted)  # counts what its answer holds in memory
    record_headers: tuple[tuple[str, bytes], ...] = ()  # of its trace: for records that belong to none yet
    ends_with_client: bool = False  # nothing is done any more for a client that will send nothing more
    path_values: Mapping[str, str] = field(default_factory=dict)  # what stands for the names in the route's path

    @cached_property
    def client_id(self) -> str:
        """What Kafka's clients call so: the name of the software, if it says one."""
        return self.headers.get("user-agent", CLIENT_ID)[:CLIENT_ID_CHARS_MAX] or CLIENT_ID

    @cached_property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @cached_property
    def query(self) -> Mapping[str, str]:
        if "?" not in self.target:
            return {}
        try:
            pairs = parse_qsl(
                self.target.partition("?")[2],
                keep_blank_values=True,
                errors="surrogateescape",  # a key that is looked for may be any bytes
                max_num_fields=QUERY_FIELDS_MAX,
            )
        except ValueError as error:
            raise Problem(400, "INVALID_REQUEST", f"The query cannot be read: {error}.") from error
        return dict(pairs)

    def json(self) -> Job[object]:
        try:
            return (yield from parsed(text_of(self.body)))
        except (ValueError, RecursionError) as error:
            raise Problem(400, "INVALID_REQUEST", f"The body is not JSON: {error}.") from error


def path_segments(path: str) -> list[str]:
    """Raises Problem: what is not UTF-8 is nobody's name, and must not be taken for another's."""
    try:
        return [unquote(segment, errors="strict") for segment in path.split("/")[1:]]
    except UnicodeDecodeError:
        raise Problem(400, "INVALID_REQUEST", "The path is not UTF-8.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedResponse:
    """An answer whose end is not known yet. `chunks` is closed when the client is gone."""

    chunks: AsyncIterator[bytes]
    content_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


async def json_response(value: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    text = await finished_in_background(written(value))
    return HttpResponse(status=status, body=text.encode(errors="replace"), headers=headers)
