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

from tidemark.storage.files import Buffer

_WORDS_MAX = 64
_LONG = 4 * _WORDS_MAX  # bytes; longer keys are rare, and get a hash function each
_LANES = 4
PADDING = bytes(8)  # to follow the data, so that two words may be read anywhere in it
_MASKS = np.array([0xFFFFFFFF, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint64)  # by how many bytes the last word has
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)
_UPPER = np.uint64(0xFFFFFFFF00000000)

Words = NDArray[np.uint64]


class KeyHash:
    def __init__(self, seed: int) -> None:
        self._secret = seed.to_bytes(16, "big")
        numbers = np.random.Generator(np.random.PCG64(seed))
        self._factors = numbers.integers(0, 1 << 64, size=(_WORDS_MAX + 2, _LANES), dtype=np.uint64, endpoint=False)

    def __call__(self, data: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The hashes of the keys that lie there in `data`, which ends with PADDING: a row of two numbers each."""
        hashes = np.empty((len(starts), 2), dtype=np.uint64)
        if not len(starts):
            return hashes
        sums = self._sums(data, starts, lengths)
        hashes[:, 0] = (sums[0] & _UPPER) | (sums[1] >> _HALF)
        hashes[:, 1] = (sums[2] & _UPPER) | (sums[3] >> _HALF)
        for at in np.flatnonzero(lengths > _LONG).tolist():
            hashes[at] = self._digest(data[int(starts[at]) : int(starts[at] + lengths[at])])
        return hashes

    def _sums(self, data: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Words]:
        begin, by_length = self._factors[_WORDS_MAX], self._factors[_WORDS_MAX + 1]
        sums = [begin[lane] + lengths.astype(np.uint64) * by_length[lane] for lane in range(_LANES)]
        pairs = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
        shortest, longest = int(lengths.min()), int(lengths.max())
        for word in range(0, min((longest + 3) // 4, _WORDS_MAX), 2):
            if shortest >= 4 * word + 4:
                pair = pairs[starts + 4 * word]
                self._add(sums, pair & _LOWER, word)
            else:
                self._add_ends(sums, pairs, starts, lengths, word)
                pair = None
            if longest <= 4 * word + 4:
                break
            if pair is not None and shortest >= 4 * word + 8:
                self._add(sums, pair >> _HALF, word + 1)
            else:
                self._add_ends(sums, pairs, starts, lengths, word + 1)
        return sums

    def _add(self, sums: list[Words], values: Words, word: int) -> None:
        product = np.empty_like(values)
        for lane, total in enumerate(sums):
            np.multiply(values, self._factors[word, lane], out=product)
            total += product

    def _add_ends(
        self, sums: list[Words], pairs: Words, starts: NDArray[np.int64], lengths: NDArray[np.int64], word: int
    ) -> None:
        """Where not every key has this word, or all of it."""
        has = np.flatnonzero(lengths > 4 * word)
        left = lengths[has] - 4 * word
        values = pairs[starts[has] + 4 * word] & _MASKS[np.where(left >= 4, 0, left)]
        for lane, total in enumerate(sums):
            total[has] += values * self._factors[word, lane]

    def _digest(self, key: Buffer) -> NDArray[np.uint64]:
        digest = hashlib.blake2b(key, digest_size=16, key=self._secret).digest()
        return np.frombuffer(digest, dtype=np.uint64)
