"""What SCRAM shows of a user that does not exist: a salt and a number of iterations, as if it did.

Whoever asks for the same name at another node, or again after a restart, must see the same: that is how users who
exist look. So a decoy is made from what all nodes have and nobody is shown, the key of a user who does exist, and
looks like one of the users' own credentials, whose salts and iterations the clients that made them have chosen.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidemark.broker.metadata.credentials import MECHANISM_NUMBERS, OfUser
from tidemark.protocol.sasl import scram
from tidemark.protocol.sasl.scram import Credential

SALT_BYTES: Final = 26  # of Kafka's own salts, which clients make: 130 bits
SALT_BYTES_MAX: Final = hashlib.sha512().digest_size

Users = Mapping[str, OfUser]


class _Model(NamedTuple):
    """What the decoys of one mechanism are made from."""

    users: Users
    key: bytes
    shapes: list[tuple[int, int]]  # bytes of salt, iterations


class Decoys:
    """Of one mechanism."""

    def __init__(self, mechanism: str, users: Callable[[], Users], *, key: bytes) -> None:
        """`key`: known to nobody else; used as long as there is no user."""
        self._mechanism = mechanism
        self._number = MECHANISM_NUMBERS[mechanism]
        self._users = users
        self._key = key
        self._model = _Model({}, key, [(SALT_BYTES, scram.ITERATIONS_MIN)])

    def __call__(self, user: str) -> Credential:
        model = self._model_now()
        digest = hmac.digest(model.key, f"{self._mechanism} {user}".encode(), "sha512")
        salt_bytes, iterations = model.shapes[digest[-1] % len(model.shapes)]
        size = hashlib.new(scram.HASHES[self._mechanism]).digest_size
        return Credential(
            salt=digest[:salt_bytes], stored_key=bytes(size), server_key=bytes(size), iterations=iterations
        )

    def _model_now(self) -> _Model:
        users = self._users()
        if users is not self._model.users:
            known = [(name, of_user[self._number]) for name, of_user in users.items() if self._number in of_user]
            shapes = {(min(len(each.salt), SALT_BYTES_MAX), each.iterations) for _, each in known}
            _, first = min(known, key=lambda each: each[0], default=("", None))
            self._model = _Model(
                users,
                self._key if first is None else first.server_key,
                sorted(shapes) or [(SALT_BYTES, scram.ITERATIONS_MIN)],
            )
        return self._model
