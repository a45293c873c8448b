"""Request and response headers.

Every request starts with its API key and version; whether tagged fields follow depends on both. A response starts with
the correlation id, and in flexible versions a tag section, except for ApiVersions, whose reader does not yet know
which versions its broker speaks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidemark.protocol.schema import DecodeError
from tidemark.protocol.varint import skip_tags

API_VERSIONS_KEY: Final = 18

_request = struct.Struct(">hhih").unpack_from
_response_v0 = struct.Struct(">ii").pack
_response_v1 = struct.Struct(">iix").pack
_size = struct.Struct(">i").pack_into


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(
    buf: memoryview, *, first_flexible: Mapping[int, int], pos: int = 0
) -> tuple[RequestHeader, int]:
    """The header at `pos`, and where the body starts. `first_flexible` has the first flexible version of an API key."""
    try:
        key, version, correlation_id, size = _request(buf, pos)
        pos += 10
        client_id = None
        if size >= 0:
            stop = pos + size
            if stop > len(buf):
                raise DecodeError(f"client id of {size} bytes with {len(buf) - pos} left")
            client_id = str(buf[pos:stop], "utf-8")
            pos = stop
        elif size != -1:
            raise DecodeError(f"client id of {size} bytes")
        if version >= first_flexible.get(key, 32767):
            pos = pos + 1 if buf[pos] == 0 else skip_tags(buf, pos)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id), pos


def write_request_header(out: bytearray, header: RequestHeader, *, flexible: bool) -> None:
    key, version, correlation_id, client_id = header
    data = b"" if client_id is None else client_id.encode()
    out += struct.pack(">hhih", key, version, correlation_id, -1 if client_id is None else len(data))
    out += data
    if flexible:
        out.append(0)


def begin_response(correlation_id: int, *, flexible: bool) -> bytearray:
    """A frame with room for its size, and the response header. ApiVersions is never flexible here."""
    return bytearray(_response_v1(0, correlation_id) if flexible else _response_v0(0, correlation_id))


def finish_frame(out: bytearray, *, more: int = 0) -> None:
    """Write the size of the frame that `out` starts with, of which `more` bytes are elsewhere."""
    _size(out, 0, len(out) - 4 + more)
