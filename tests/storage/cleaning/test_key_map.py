"""The map of keys against a dictionary."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tidemark.storage import CleaningFailed
from tidemark.storage.cleaning.key_hash import PADDING, KeyHash
from tidemark.storage.cleaning.key_map import KEY_BYTES, NOT_FOUND, KeyMap


def hashes_of(keys: list[int]) -> np.ndarray:
    """As different as those of a hash function; 0 is one of them."""
    mixed = [(key * 0x9E3779B97F4A7C15 & (1 << 64) - 1, key * 0xC2B2AE3D27D4EB4F & (1 << 64) - 1) for key in keys]
    return np.array(mixed, dtype=np.uint64).reshape(len(keys), 2)


@pytest.mark.parametrize("seed", range(8))
def test_the_last_offset_of_every_key_is_known(seed: int) -> None:
    random = Random(seed)
    count = random.choice([3, 50, 2_000, 20_000])
    known: dict[int, int] = {}
    found = KeyMap(memory_bytes=int(count * KEY_BYTES / 0.9) + 60, load_factor=0.9, keys_max=1 << 40)
    assert found.capacity >= count
    offset = random.choice([0, 1 << 40])
    first = offset
    for _ in range(12):
        keys = [random.randrange(count) for _ in range(random.randrange(min(found.room, 4_000) + 1))]
        found.put(hashes_of(keys), np.arange(offset, offset + len(keys)))
        known.update(zip(keys, range(offset, offset + len(keys)), strict=True))
        offset += len(keys)
        assert found.size == len(known)
    asked = [*known, count + 1, count + 2]
    assert found.get(hashes_of(asked)).tolist() == [known.get(key, NOT_FOUND) for key in asked]
    newest = found.newest(first=first, end=offset)
    assert (np.flatnonzero(newest) + first).tolist() == sorted(known.values())


def test_no_more_keys_are_taken_than_memory_allows() -> None:
    found = KeyMap(memory_bytes=1 << 20, load_factor=0.9, keys_max=1 << 40)
    assert 0.85 * (1 << 20) < found.capacity * KEY_BYTES <= 0.9 * (1 << 20)
    found.put(hashes_of(list(range(found.capacity))), np.arange(found.capacity))
    assert found.room == 0
    with pytest.raises(CleaningFailed):
        found.put(hashes_of([1]), np.arange(1))


def test_a_small_log_needs_a_small_map() -> None:
    assert KeyMap(memory_bytes=128 << 20, load_factor=0.9, keys_max=10).capacity == 10


def test_keys_of_any_length_are_told_apart_by_every_byte() -> None:
    random = Random(1)
    keys = {b""}
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 255, 256, 257, 300):
        for _ in range(20):
            key = random.randbytes(length)
            keys |= {key, key[:-1], key + b"\0", bytes([key[0] ^ 1]) + key[1:]}
    ordered = sorted(keys)
    data = b"".join(ordered) + PADDING
    lengths = np.array([len(key) for key in ordered])
    starts = np.cumsum(lengths) - lengths
    hashes = KeyHash(7)(data, starts, lengths)
    assert len({(a, b) for a, b in hashes.tolist()}) == len(ordered)
    assert (hashes == KeyHash(7)(b"x" * 5 + data, starts + 5, lengths)).all()
    alone = [KeyHash(7)(key + PADDING, np.array([0]), np.array([len(key)]))[0].tolist() for key in ordered]
    assert alone == hashes.tolist()
    assert (hashes != KeyHash(8)(data, starts, lengths)).any(axis=1).all()
