"""Throw-away certificates for development and tests: an authority, and what it signs for nodes and clients.

Not for production: the authority's key lies beside what it signs. Keys are of the curve P-256, which costs a handshake
a tenth of what RSA does.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS: Final = 365
CA_DAYS: Final = 3650
SKEW: Final = datetime.timedelta(hours=1)  # other machines' clocks may be behind
_USES: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate:
    """A certificate with its key and its issuer's certificate."""

    certificate: x509.Certificate
    key: Key
    issuer: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: str | None = None) -> bytes:
        cipher = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher)

    def pkcs12(self, password: str) -> bytes:
        cipher = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"tidemark", self.key, self.certificate, [self.issuer], cipher)


class Authority:
    """Signs. Made anew, or loaded from where it was written."""

    def __init__(self, certificate: x509.Certificate, key: Key) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def make(cls, name: str | None = None, *, now: datetime.datetime | None = None) -> Authority:
        """Without a name it gets one that no other has: clients tell authorities apart by their names."""
        name = name or f"Tidemark throw-away CA {secrets.token_hex(4)}"
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), key, now=now, days=CA_DAYS).issuer_name(_named(name))
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, directory: Path) -> Authority:
        certificate = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
        key = load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{directory / 'ca.key'} is no key that was made here")
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def issue(
        self, name: str, hosts: Iterable[str] = (), *, days: float = DAYS, now: datetime.datetime | None = None
    ) -> Certificate:
        """A certificate for a node that is reached at `hosts`, or for a client, which needs none."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), key, now=now, days=days).issuer_name(self.certificate.subject)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_USES, critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())  # strict clients want it
        builder = builder.add_extension(issuer, critical=False)
        if names := [_alternative(each) for each in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Certificate(certificate=builder.sign(self._key, hashes.SHA256()), key=key, issuer=self.certificate)


def write_private(path: Path, data: bytes) -> None:
    """Only its owner may read it. Replaced at once, so that who watches it never sees half of it."""
    beside = path.with_name(f".{path.name}.new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    beside.replace(path)


def _builder(name: x509.Name, key: Key, *, now: datetime.datetime | None, days: float) -> x509.CertificateBuilder:
    now = now or datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _named(name: str) -> x509.Name:
    """A common name alone, or a whole distinguished name: CN=ann,OU=ops."""
    if "=" in name:
        return x509.Name.from_rfc4514_string(name)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
