"""The user that the nodes of a cluster log in with at each other.

Its password is in every node's settings, so a node knows it before it has seen any metadata: a cluster whose members
log in at each other by SCRAM starts without a user having been made.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.decoys import SALT_BYTES
from tidemark.broker.security.sasl.scram import USER_TYPE, Derive, KnownUser
from tidemark.protocol.sasl.scram import make_credential


class NodeUser:
    def __init__(self, name: str, password: str, *, random_bytes: Callable[[int], bytes]) -> None:
        self.name = name
        self.password = password
        self._salt = random_bytes(SALT_BYTES)
        self._known: dict[str, KnownUser] = {}  # by mechanism, once derived

    def lookup(self, mechanism: str) -> KnownUser | Derive:
        """For a SCRAM login at this node."""
        return self._known.get(mechanism) or (lambda: self._derive(mechanism))

    def _derive(self, mechanism: str) -> KnownUser:
        credential = make_credential(mechanism, self.password, salt=self._salt)
        known = self._known[mechanism] = KnownUser(Principal(USER_TYPE, self.name), credential)
        return known
