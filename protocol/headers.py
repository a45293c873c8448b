"""Request and response headers: the one place where they are read and written.

A request begins with its API key and version, correlation id and client id; a response with its correlation id. In
flexible versions a section of tagged fields follows, except in the response to ApiVersions, whose reader does not know
yet which versions its broker speaks (KIP-511).

The broker's dispatcher handles tens of thousands of headers per second and uses the parts: `request_start`,
`read_client_id` (only when a connection's client id changes) and `skip_header_tags`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidemark.protocol.schema import Bytes, DecodeError, api
from tidemark.protocol.varint import skip_tags

API_VERSIONS_KEY: Final = 18
CLIENT_ID_AT: Final = 8  # after API key, version and correlation id
REQUEST_BYTES_MIN: Final = 10  # with a client id that is null or empty

# API key and version as one number (see `split_selector`), and the correlation id.
request_start: Final = struct.Struct(">ii").unpack_from
# Into a frame made from `response_room`: its size without the size itself, and the correlation id.
put_response_start: Final = struct.Struct(">ii").pack_into

_int16_at = struct.Struct(">h").unpack_from
_int32_at = struct.Struct(">i").unpack_from
_request = struct.Struct(">ihhih")  # size, API key, version, correlation id, length of the client id


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def split_selector(selector: int) -> tuple[int, int]:
    """API key and version."""
    return selector >> 16, selector & 0xFFFF


# -- reading requests ------------------------------------------------------


def read_client_id(frame: Bytes) -> tuple[str | None, bytes]:
    """The client id, and the bytes that it takes from CLIENT_ID_AT on, its length included.

    As Kafka: any negative length is null, and an id need not be well-formed.
    """
    try:
        (length,) = _int16_at(frame, CLIENT_ID_AT)
    except struct.error as error:
        raise DecodeError(f"request header: {error}") from error
    end = CLIENT_ID_AT + 2 + max(length, 0)
    if end > len(frame):
        raise DecodeError(f"client id of {length} bytes with {len(frame) - CLIENT_ID_AT - 2} left")
    client_id = None if length < 0 else str(frame[CLIENT_ID_AT + 2 : end], "utf-8", "replace")
    return client_id, bytes(frame[CLIENT_ID_AT:end])


def skip_header_tags(frame: Bytes, position: int) -> int:
    """Where the body of a flexible message begins whose header's tagged fields are at `position`."""
    try:
        return position + 1 if not frame[position] else skip_tags(memoryview(frame), position)
    except IndexError as error:
        raise DecodeError(f"header of {len(frame)} bytes: {error}") from error


def read_request_header(frame: Bytes, *, first_flexible: Mapping[int, int]) -> tuple[RequestHeader, int]:
    """The whole header, and where the body starts. `first_flexible` has the first flexible version of an API key."""
    client_id, field = read_client_id(frame)
    selector, correlation_id = request_start(frame)
    key, version = split_selector(selector)
    position = CLIENT_ID_AT + len(field)
    if version >= first_flexible.get(key, 32767):
        position = skip_header_tags(frame, position)
    return RequestHeader(key, version, correlation_id, client_id), position


# -- writing requests ------------------------------------------------------


def request_frame(header: RequestHeader, body: Bytes, *, flexible: bool) -> bytes:
    """The whole frame of a request, with its size."""
    key, version, correlation_id, client_id = header
    data = b"" if client_id is None else client_id.encode()
    tags = b"\0" if flexible else b""
    size = _request.size - 4 + len(data) + len(tags) + len(body)
    start = _request.pack(size, key, version, correlation_id, -1 if client_id is None else len(data))
    return b"".join((start, data, tags, body))


# -- responses -------------------------------------------------------------


def has_response_tags(response: type[Any], version: int) -> bool:
    described = api(response)
    return version in described.flexible and described.key != API_VERSIONS_KEY


def response_room(response: type[Any], version: int) -> bytes:
    """What a response's frame begins with, for `put_response_start` to fill in."""
    return bytes(9 if has_response_tags(response, version) else 8)


def read_correlation_id(frame: Bytes) -> int:
    """Of a response's frame, without its size."""
    try:
        correlation_id: int = _int32_at(frame)[0]
    except struct.error as error:
        raise DecodeError(f"response header: {error}") from error
    return correlation_id


def response_body_at(frame: Bytes, response: type[Any], version: int) -> int:
    """Where the body begins in a response's frame, without its size."""
    return skip_header_tags(frame, 4) if has_response_tags(response, version) else 4
