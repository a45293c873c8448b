"""The compiler behind `tidemark.protocol.schema.codec`: field tables in, straight-line Python out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark.protocol.codegen.decoding import Decoder
from tidemark.protocol.codegen.emitter import Emitter
from tidemark.protocol.codegen.encoding import Encoder
from tidemark.protocol.schema import api

__all__ = ["compile_function", "source_of"]


def compile_function(cls: type[Any], version: int, name: str) -> Callable[..., Any]:
    """`encode`, `encode_parts`, `decode`, or one of them with `_slices`, of one version of `cls`."""
    return _emitter(cls, version, name).compile(cls)


def source_of(cls: type[Any], version: int, name: str) -> str:
    """What `compile_function` compiles, for a person to read."""
    emitter = _emitter(cls, version, name)
    emitter.compile(cls)
    return emitter.source()


def _emitter(cls: type[Any], version: int, name: str) -> Emitter:
    flexible = version in api(cls).flexible
    in_slices = name.endswith("_slices")
    if name.startswith("decode"):
        return Decoder(version, flexible=flexible, in_slices=in_slices)
    return Encoder(version, flexible=flexible, in_parts=name.startswith("encode_parts"), in_slices=in_slices)
