from __future__ import annotations

import pytest

from tidemark.pipeline.registry.framing import Unframed, header, split, split_indexes


def test_a_frame_is_a_zero_and_the_id() -> None:
    assert header(258) == b"\0\0\0\1\2"
    assert split(b"\0\0\0\1\2rest") == (258, b"rest")


@pytest.mark.parametrize("framed", [b"", b"\0\0\0\1", b"\1\0\0\0\1x", b'{"a": 1}'])
def test_what_is_not_framed_is_told(framed: bytes) -> None:
    with pytest.raises(Unframed, match="not framed"):
        split(framed)


def test_a_protobuf_frame_names_the_message_by_its_place() -> None:
    assert split_indexes(b"\0rest") == ((0,), b"rest")
    assert split_indexes(b"\2\2rest") == ((1,), b"rest")
    assert split_indexes(b"\4\0\2rest") == ((0, 1), b"rest")


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\4\0", b"\xfe\xff\xff\xff\x0f", b"\1", b"\xff" * 12])
def test_a_broken_protobuf_frame_is_told(payload: bytes) -> None:
    with pytest.raises(Unframed):
        split_indexes(payload)
