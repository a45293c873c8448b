"""`embedded(security=…)`: certificates made for one broker, its settings, and what its clients need."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.certificates import Authority, write_private

HOSTS: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """`client_settings` are librdkafka's; `java_settings` those of the Java client and Spark's connector."""

    broker_settings: Mapping[str, str]
    client_settings: Mapping[str, str]
    java_settings: Mapping[str, str]
    ca_file: Path | None = None
    client_file: Path | None = None
    """A client's key and certificate in one PEM file."""


def secured(kind: str, directory: Path) -> Security:
    """Raises ValueError for a kind that there is not."""
    if kind not in KINDS:
        raise ValueError(f"security={kind!r} is not known; it must be one of {', '.join(map(repr, KINDS))}")
    directory.mkdir(parents=True, exist_ok=True)
    return KINDS[kind](directory)


def _tls(directory: Path, *, client_name: str | None = None) -> Security:
    authority = Authority.make()
    node = authority.issue("node", HOSTS)
    ca, store = directory / "ca.pem", directory / "node.pem"
    ca.write_bytes(authority.pem)
    write_private(store, node.key_pem() + node.pem)
    broker = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }
    client = {"security.protocol": "SSL", "ssl.ca.location": str(ca)}
    java = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    if client_name is None:
        return Security(broker_settings=broker, client_settings=client, java_settings=java, ca_file=ca)
    own = directory / "client.pem"
    issued = authority.issue(client_name)
    write_private(own, issued.key_pem() + issued.pem)
    return Security(
        broker_settings={**broker, "ssl.client.auth": "required"},
        client_settings={**client, "ssl.certificate.location": str(own), "ssl.key.location": str(own)},
        java_settings={**java, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)},
        ca_file=ca,
        client_file=own,
    )


def _scram(directory: Path) -> Security:
    """A user that the broker knows from its settings, so that nobody has to be made first."""
    user, password = "test", secrets.token_urlsafe(16)
    broker = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "sasl.node.user": user,
        "sasl.node.password": password,
    }
    protocol = {"security.protocol": "SASL_PLAINTEXT"}
    client = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
    line = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{password}";'
    return Security(
        broker_settings=broker,
        client_settings={**protocol, **client},
        java_settings={**protocol, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": line},
    )


KINDS: Final[Mapping[str, Callable[[Path], Security]]] = {
    "scram": _scram,
    "tls": _tls,
    "mtls": lambda directory: _tls(directory, client_name="client"),
}
