"""128 bits of hash for each of many keys at once.

Four times multilinear hashing: the sum of a key's 32-bit words, each multiplied by a random 64-bit number of its place,
modulo 2^64; its upper half counts. Two different keys agree in one such half with a probability of 2^-32, whatever the
keys, as long as nobody knows the numbers; in four independent ones, of 2^-128. Kafka takes MD5, which needs a call per
key.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_WORDS_MAX = 64
_LONG = 4 * _WORDS_MAX  # bytes; longer keys are rare, and get a hash function each
PADDING = bytes(8)  # to follow the data, so that a word may be read anywhere in it
_MASKS = np.array([0xFFFFFFFF, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint64)  # by how many bytes the last word has
_HALF = np.uint64(32)
_UPPER = np.uint64(0xFFFFFFFF00000000)


class KeyHash:
    def __init__(self, seed: int) -> None:
        self._secret = seed.to_bytes(16, "big")
        numbers = np.random.Generator(np.random.PCG64(seed))
        self._factors = numbers.integers(0, 1 << 64, size=(_WORDS_MAX + 2, 4), dtype=np.uint64, endpoint=False)

    def __call__(self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The hashes of the keys that lie there in `data`, which ends with PADDING: a row of two numbers each."""
        sums = self._factors[_WORDS_MAX] + lengths.astype(np.uint64)[:, None] * self._factors[_WORDS_MAX + 1]
        words = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
        longest = int(lengths.max(initial=0))
        self._add_words(sums, words, starts, lengths, count=min((longest + 3) // 4, _WORDS_MAX))
        hashes = np.empty((len(starts), 2), dtype=np.uint64)
        hashes[:, 0] = (sums[:, 0] & _UPPER) | (sums[:, 1] >> _HALF)
        hashes[:, 1] = (sums[:, 2] & _UPPER) | (sums[:, 3] >> _HALF)
        if longest > _LONG:
            for at in np.flatnonzero(lengths > _LONG).tolist():
                hashes[at] = self._digest(data[int(starts[at]) : int(starts[at] + lengths[at])])
        return hashes

    def _add_words(
        self,
        sums: NDArray[np.uint64],
        words: NDArray[np.uint32],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        *,
        count: int,
    ) -> None:
        for word in range(count):
            left = lengths - 4 * word
            if (left >= 4).all():
                sums += words[starts + 4 * word].astype(np.uint64)[:, None] * self._factors[word]
                continue
            has = np.flatnonzero(left > 0)
            values = words[starts[has] + 4 * word].astype(np.uint64)
            values &= _MASKS[np.where(left[has] >= 4, 0, left[has])]
            sums[has] += values[:, None] * self._factors[word]

    def _digest(self, key: bytes) -> NDArray[np.uint64]:
        digest = hashlib.blake2b(key, digest_size=16, key=self._secret).digest()
        return np.frombuffer(digest, dtype=np.uint64)
