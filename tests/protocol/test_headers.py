"""Request and response headers, against kio and kafka-python, and against damage."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseV1
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from tidemark.protocol.apis import first_flexible
from tidemark.protocol.headers import (
    RequestHeader,
    put_response_start,
    read_correlation_id,
    read_request_header,
    request_frame,
    response_body_at,
    response_room,
)
from tidemark.protocol.messages.api_versions import ApiVersionsResponse
from tidemark.protocol.messages.metadata import MetadataResponse
from tidemark.protocol.schema import DecodeError

FLEXIBLE = {18: 3}


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "é" * 100])
@pytest.mark.parametrize(("version", "kio_class"), [(2, KioHeaderV1), (3, KioHeaderV2)])
def test_request_headers_are_kios(client_id: str | None, version: int, kio_class: type) -> None:
    theirs = kio_class(
        request_api_key=i16(18), request_api_version=i16(version), correlation_id=i32(77), client_id=client_id
    )
    with io.BytesIO() as buffer:
        entity_writer(kio_class)(buffer, theirs)
        data = buffer.getvalue()
    header, pos = read_request_header(memoryview(data + b"body"), first_flexible=FLEXIBLE)
    assert header == RequestHeader(18, version, 77, client_id)
    assert pos == len(data)
    frame = request_frame(header, b"body", flexible=version == 3)
    assert frame == len(data + b"body").to_bytes(4, "big") + data + b"body"


def test_tags_in_a_request_header_are_skipped() -> None:
    data = b"\0\x12\0\3\0\0\0\1\xff\xff" + b"\1\7\2xx"
    header, pos = read_request_header(memoryview(data), first_flexible=FLEXIBLE)
    assert (header.client_id, pos) == (None, len(data))


@given(st.binary(max_size=40))
def test_a_damaged_request_header_is_refused(data: bytes) -> None:
    with suppress(DecodeError):
        read_request_header(memoryview(data), first_flexible=dict.fromkeys(range(-32768, 32768), 0))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\x12\0\3\0\0\0\1",
        b"\0\x12\0\3\0\0\0\1\0\5abc",
        b"\0\x12\0\3\0\0\0\1\xff\xff",
    ],
)
def test_a_header_cut_short_or_wrong_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_request_header(memoryview(data), first_flexible=FLEXIBLE)


@pytest.mark.parametrize(("size", "client_id"), [(b"\xff\xfe", None), (b"\0\1\xff", "\N{REPLACEMENT CHARACTER}")])
def test_any_negative_length_is_null_and_an_id_need_not_be_well_formed(size: bytes, client_id: str | None) -> None:
    data = b"\0\x12\0\2\0\0\0\1" + size
    header, pos = read_request_header(memoryview(data), first_flexible=FLEXIBLE)
    assert (header.client_id, pos) == (client_id, len(data))


@pytest.mark.parametrize(("version", "kio_class"), [(8, KioResponseV0), (9, KioResponseV1)])
def test_response_headers_are_kios(version: int, kio_class: type) -> None:
    out = bytearray(response_room(MetadataResponse, version))
    put_response_start(out, 0, 100, 1234)
    out += b"body"
    header, size = entity_reader(kio_class)(bytes(out), 4)  # type: ignore[var-annotated]
    assert header.correlation_id == read_correlation_id(out[4:]) == 1234
    assert out[4 + size :] == b"body"
    assert response_body_at(out[4:], MetadataResponse, version) == size
    assert int.from_bytes(out[:4], "big") == 100


def test_the_answer_to_api_versions_keeps_the_old_header() -> None:
    assert len(response_room(ApiVersionsResponse, 3)) == 8
    assert response_body_at(bytes(8), ApiVersionsResponse, 3) == 4


def test_a_response_header_cut_short_is_refused() -> None:
    with pytest.raises(DecodeError):
        read_correlation_id(b"\0\0\0")
    with pytest.raises(DecodeError):
        response_body_at(b"\0\0\0\1", MetadataResponse, 9)
    with pytest.raises(DecodeError):
        response_body_at(b"\0\0\0\1\2", MetadataResponse, 9)


def test_first_flexible_versions_come_from_the_messages() -> None:
    assert first_flexible([0, 1, 18]) == {0: 9, 1: 12, 18: 3}
    assert first_flexible()[47] > 100  # OffsetDelete never became flexible
