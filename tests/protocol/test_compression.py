"""The four codecs against other libraries, and their limits."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
from contextlib import suppress

import lz4.frame
import pytest
import snappy
import zstandard
from kafka.codec import lz4_decode, snappy_decode, snappy_encode

from tidemark.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, DecompressionError, compress, decompress

SAMPLES = [b"", b"x", b"tidemark " * 10_000, random.Random(1).randbytes(100_000)]
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_was_compressed_comes_back(codec: int, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_other_libraries_read_ours(data: bytes) -> None:
    assert gzip.decompress(compress(GZIP, data)) == data
    assert lz4.frame.decompress(compress(LZ4, data)) == data
    assert lz4_decode(compress(LZ4, data)) == data
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(ZSTD, data)) == data
    assert snappy_decode(compress(SNAPPY, data)) == data


@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_we_read_what_other_libraries_write(data: bytes) -> None:
    assert decompress(GZIP, gzip.compress(data)) == data
    assert decompress(LZ4, lz4.frame.compress(data)) == data
    assert decompress(LZ4, lz4.frame.compress(data, block_linked=False, content_checksum=True)) == data
    assert decompress(ZSTD, zstandard.ZstdCompressor().compress(data)) == data
    assert decompress(ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(data)) == data
    assert decompress(SNAPPY, snappy.compress(data)) == data  # raw, as librdkafka writes
    assert decompress(SNAPPY, snappy_encode(data)) == data  # framed, as Java writes


def test_lz4_blocks_are_independent() -> None:
    """Kafka's Java client refuses a frame whose blocks refer to each other: bit 5 of the flags."""
    assert compress(LZ4, b"x" * 200_000)[4] & 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: int) -> None:
    data = bytes(1_000_000)
    packed = compress(codec, data)
    assert decompress(codec, packed, limit_bytes=len(data)) == data
    with pytest.raises(DecompressionError):
        decompress(codec, packed, limit_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_than_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64_000_000))
    tracemalloc.start()
    with pytest.raises(DecompressionError):
        decompress(codec, bomb, limit_bytes=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


def test_snappy_that_claims_more_than_it_can_hold_is_not_allocated() -> None:
    claim = b"\xff\xff\xff\xff\x07"
    for data in (claim, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(claim)) + claim):
        with pytest.raises(DecompressionError):
            decompress(SNAPPY, data, limit_bytes=1 << 32)


@pytest.mark.parametrize("codec", CODECS)
def test_damage_raises_one_kind_of_error(codec: int) -> None:
    rng = random.Random(codec)
    packed = compress(codec, b"tidemark " * 100)
    for _ in range(1000):
        damaged = bytearray(packed)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with suppress(DecompressionError):
            decompress(codec, damaged, limit_bytes=100_000)
        with suppress(DecompressionError):
            decompress(codec, damaged[: rng.randrange(len(damaged))], limit_bytes=100_000)


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(DecompressionError, match="no compression codec 5"):
        decompress(5, b"")
    with pytest.raises(ValueError, match="no compression codec 5"):
        compress(5, b"")
