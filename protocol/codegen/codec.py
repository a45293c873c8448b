"""Put the two halves of a codec together."""

from __future__ import annotations

from typing import Any

from protocol.codegen.decoding import Decoder
from protocol.codegen.encoding import Encoder
from protocol.schema import Codec, api


def compile_codec(cls: type[Any], version: int) -> Codec[Any]:
    flexible = version in api(cls).flexible
    encoder = Encoder(version, flexible=flexible, in_parts=False)
    parts = Encoder(version, flexible=flexible, in_parts=True)
    decoder = Decoder(version, flexible=flexible)
    encode = encoder.compile(cls)
    return Codec(
        encode=encode,
        decode=decoder.compile(cls),
        encode_parts=parts.compile(cls),
        source=encoder.source() + parts.source() + decoder.source(),
    )
