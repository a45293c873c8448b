"""The four codecs of record batches, bounded: a batch of a few bytes can claim to hold gigabytes.

Snappy comes in two forms: raw blocks (librdkafka) and Java's framing of blocks (snappy-java, most other clients). We
read both, and write the framing, which every client reads.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import cramjam

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# What one batch may grow to. The largest batch a broker takes by default is 1 MiB; text rarely shrinks fiftyfold.
LIMIT_BYTES: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_FILLED_BYTES_MAX: Final = 1 << 20
_EXPANDED_BYTES_MIN: Final = 64 << 10  # to begin with: what does not fit is decompressed again

_Data = bytes | bytearray | memoryview


class DecompressionError(ValueError):
    """The payload is not what its codec writes, or is larger than allowed."""


class TooLarge(DecompressionError):
    """The payload is larger than allowed."""


def compress(codec: int, data: _Data, *, level: int | None = None) -> bytes:
    """`data` as the payload of a batch with this codec."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None else level))
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, level)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise ValueError(f"no compression codec {codec}")


def decompress(codec: int, data: _Data, *, limit_bytes: int = LIMIT_BYTES) -> memoryview:
    """What `compress` was given. Raises only DecompressionError; never holds much more than `limit_bytes`."""
    if codec == NONE:
        return memoryview(data)
    expand = _DECOMPRESS.get(codec)
    if expand is None:
        raise DecompressionError(f"no compression codec {codec}")
    try:
        return expand(data, limit_bytes)
    except DecompressionError:
        raise
    except (cramjam.DecompressionError, OSError, ValueError, struct.error) as error:
        raise DecompressionError(f"{CODEC_NAMES[codec]}: {error}") from error


def _bounded(module: Any) -> Callable[[_Data, int], memoryview]:
    """Decompress into a buffer that grows only as far as the limit."""

    def expand(data: _Data, limit_bytes: int) -> memoryview:
        size = min(limit_bytes, max(_EXPANDED_BYTES_MIN, 4 * len(data)))
        while True:
            out = _room(size)
            try:
                return memoryview(out)[: module.decompress_into(data, out)]
            except cramjam.DecompressionError as error:
                if _OVERFLOW not in str(error):
                    raise
                if size >= limit_bytes:
                    raise TooLarge(f"more than {limit_bytes} bytes when decompressed") from error
            size = min(limit_bytes, 8 * size)

    return expand


def _room(size: int) -> bytearray | mmap.mmap:
    """A large buffer comes straight from the system: filling 64 MiB with zeroes would hold all threads for 30 ms."""
    return bytearray(size) if size <= _FILLED_BYTES_MAX else mmap.mmap(-1, size)


# How cramjam says that the output buffer is full.
_OVERFLOW: Final = "failed to write whole buffer"


def _compress_lz4(data: _Data, level: int | None) -> bytes:
    # Kafka's Java reader refuses frames whose blocks depend on each other.
    compressor = cramjam.lz4.Compressor(level=1 if level is None else level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # takes nothing else
    return bytes(compressor.finish())


def _compress_snappy(data: _Data) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, max(1, len(view)), _XERIAL_BLOCK):  # some readers insist on a block
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += struct.pack(">i", len(block))
        out += block
    return bytes(out)


def _expand_snappy(data: _Data, limit_bytes: int) -> memoryview:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return memoryview(_expand_snappy_block(view, limit_bytes))
    out, pos = bytearray(), len(_XERIAL_HEADER)
    while pos < len(view):
        (size,) = struct.unpack_from(">i", view, pos)
        pos += 4
        if not 0 <= size <= len(view) - pos:
            raise DecompressionError(f"snappy block of {size} bytes with {len(view) - pos} left")
        out += _expand_snappy_block(view[pos : pos + size], limit_bytes - len(out))
        pos += size
    return memoryview(out)


def _expand_snappy_block(block: memoryview, limit_bytes: int) -> bytearray:
    size = cramjam.snappy.decompress_raw_len(block)
    # Snappy copies at most 64 bytes for three of input: a longer claim is a lie that we need not allocate for.
    if size > 32 * len(block) + 64:
        raise DecompressionError(f"a snappy block of {len(block)} bytes claims to hold {size}")
    if size > limit_bytes:
        raise TooLarge(f"a snappy block of {size} bytes, where {limit_bytes} are allowed")
    out = bytearray(size)
    cramjam.snappy.decompress_raw_into(block, out)
    return out


_DECOMPRESS: Final[Mapping[int, Callable[[_Data, int], memoryview]]] = {
    GZIP: _bounded(cramjam.gzip),
    SNAPPY: _expand_snappy,
    LZ4: _bounded(cramjam.lz4),
    ZSTD: _bounded(cramjam.zstd),
}
