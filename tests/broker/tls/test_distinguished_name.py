"""The names of certificates, as Java prints them. The expected texts are what X500Principal.getName() gave."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tidemark.broker.tls.distinguished_name import subject_of
from tidemark.certificates import Authority

AUTHORITY = Authority.make()


@pytest.mark.parametrize(
    "name",
    [
        "CN=ann",
        "CN=ann,OU=ops,O=example,L=Bremen,ST=HB,C=DE",
        "CN=broker-1.example.com,DC=example,DC=com",
        "UID=u1+CN=two in one,O=x",
        "CN=Käthe,O=ÅÄÖ",
    ],
)
def test_a_name_reads_from_the_most_specific_part_up(name) -> None:
    issued = AUTHORITY.issue(name).certificate
    assert subject_of(issued.public_bytes(Encoding.DER)) == name


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("a,b", r"CN=a\,b"),
        ('say "hi"; <x>', r"CN=say \"hi\"\; \<x\>"),
        ("#1", r"CN=\#1"),
        (" led", r"CN=\ led"),
        ("trailing ", "CN=trailing\\ "),
        ("a=b+c\\d", r"CN=a\=b\+c\\d"),
    ],
)
def test_special_characters_are_escaped(value, printed) -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)])
    assert subject_of(_certificate(subject)) == printed


def test_attributes_that_java_does_not_name_are_numbers_and_bytes() -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "ann"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
        ]
    )
    assert subject_of(_certificate(subject)) == "1.2.840.113549.1.9.1=#1605614062 2e63,CN=ann".replace(" ", "")


def _certificate(subject: x509.Name) -> bytes:
    import datetime

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
