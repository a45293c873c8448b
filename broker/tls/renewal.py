"""What a renewed certificate may change: as in Kafka, not whom it names, unless that is allowed (KIP-978).

A file that was exchanged by mistake would otherwise lock out every client that checks the broker's name.
"""

from __future__ import annotations

from tidemark.broker.config import BrokerConfig, ConfigError
from tidemark.broker.tls.stores import KeyStore


def require_same_names(before: KeyStore | None, after: KeyStore | None, config: BrokerConfig) -> None:
    """Raises ConfigError."""
    if before is None or after is None or before.chain[0] == after.chain[0]:
        return
    (old_name, old_hosts), (new_name, new_hosts) = _names(before.chain[0]), _names(after.chain[0])
    if old_name != new_name and not config.ssl_allow_dn_changes:
        raise ConfigError(
            f"ssl.keystore: the new certificate has the distinguished name {new_name!r} instead of {old_name!r}, and"
            " ssl.allow.dn.changes is false.",
            key="ssl.keystore.location",
        )
    if (missing := old_hosts - new_hosts) and not config.ssl_allow_san_changes:
        raise ConfigError(
            f"ssl.keystore: the new certificate lacks the alternative names {', '.join(sorted(missing))}, and"
            " ssl.allow.san.changes is false.",
            key="ssl.keystore.location",
        )


def _names(pem: bytes) -> tuple[str, frozenset[str]]:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise ConfigError(f"ssl.keystore: the certificate cannot be read ({error}).", key="ssl.keystore") from None
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return certificate.subject.rfc4514_string(), frozenset()
    return certificate.subject.rfc4514_string(), frozenset(str(each.value) for each in found)
