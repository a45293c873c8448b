"""Find the field that made an encoder fail. Runs only after a failure, so that encoders need no checks of their own."""

from __future__ import annotations

import struct
from typing import Any

from tidemark.protocol.codegen.emitter import FIXED
from tidemark.protocol.schema import BytesTypes, EncodeError, Field, fields_of


def explain(msg: Any, cls: type[Any], version: int, error: Exception) -> EncodeError:
    """The error to raise for `msg`, naming the first field that cannot be written."""
    try:
        _check_struct(msg, cls, version, cls.__name__)
    except EncodeError as found:
        return EncodeError(f"{found} (version {version})")
    return EncodeError(f"{cls.__name__} (version {version}): {error}")


def _check_struct(value: Any, cls: type[Any], version: int, path: str) -> None:
    if not isinstance(value, cls):
        raise EncodeError(f"{path}: expected {cls.__name__}, got {value!r}")
    for name, field in fields_of(cls).items():
        if version in field.versions:
            _check_field(getattr(value, name), field, version, f"{path}.{name}")


def _check_field(value: Any, field: Field, version: int, path: str) -> None:
    if value is None:
        if version not in field.nullable:
            raise EncodeError(f"{path}: null in a version where it may not be")
        return
    if field.kind == "struct":
        _check_struct(value, field.of, version, path)
    elif field.kind == "array":
        _check_array(value, field, version, path)
    else:
        _check_primitive(value, field.kind, path)


def _check_array(value: Any, field: Field, version: int, path: str) -> None:
    if not isinstance(value, list | tuple):
        raise EncodeError(f"{path}: expected a list, got {value!r}")
    for index, item in enumerate(value):
        if isinstance(field.of, str):
            _check_primitive(item, field.of, f"{path}[{index}]")
        else:
            _check_struct(item, field.of, version, f"{path}[{index}]")


def _check_primitive(value: Any, kind: str, path: str) -> None:
    if kind == "string":
        if not isinstance(value, str):
            raise EncodeError(f"{path}: expected a string, got {value!r}")
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise EncodeError(f"{path}: {error}") from error
        if size > 0x7FFF:
            raise EncodeError(f"{path}: string of {size} bytes, at most 32767 fit")
    elif kind == "uuid":
        if not isinstance(value, BytesTypes) or len(value) != 16:
            raise EncodeError(f"{path}: a uuid is 16 bytes, got {value!r}")
    elif kind in FIXED:
        try:
            struct.pack(">" + FIXED[kind], value)
        except struct.error as error:
            raise EncodeError(f"{path}: {value!r} is no {kind}") from error
    elif kind == "bytes" and not isinstance(value, BytesTypes):
        raise EncodeError(f"{path}: expected bytes, got {type(value).__name__}")
