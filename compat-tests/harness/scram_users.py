"""Making and deleting SCRAM users, as their administrator."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from harness.sasl import ADMIN, librdkafka

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class Users:
    """The SCRAM users of a broker."""

    def __init__(self, bootstrap: str, more: Mapping[str, str] | None = None) -> None:
        """`more`: settings of a client, such as those of TLS."""
        self.admin = AdminClient({**librdkafka(bootstrap, "PLAIN", *ADMIN), **(more or {})})

    def set(self, user: str, password: str, *mechanisms: str) -> None:
        for each in mechanisms or MECHANISMS:
            info = ScramCredentialInfo(MECHANISMS[each], 4096)
            self._alter(UserScramCredentialUpsertion(user, info, password.encode()))

    def delete(self, user: str) -> None:
        for each in MECHANISMS.values():
            with contextlib.suppress(KafkaException):  # it has no credential of this kind
                self._alter(UserScramCredentialDeletion(user, each))

    def _alter(self, change: object) -> None:
        for future in self.admin.alter_user_scram_credentials([change], request_timeout=20).values():
            future.result(20)
