"""The compiler behind `protocol.schema.codec`: field tables in, straight-line Python out."""

from __future__ import annotations

from protocol.codegen.codec import compile_codec

__all__ = ["compile_codec"]
