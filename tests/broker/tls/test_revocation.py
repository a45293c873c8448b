"""Certificates that are taken back: a trust store may hold the authority's list of them (RFC 5280)."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from tidemark import portable
from tidemark.broker.config import ConfigError
from tidemark.broker.tls.endpoints import TlsEndpoints
from tidemark.broker.tls.failures import reason_of
from tidemark.certificates import Authority, Certificate

NOW = datetime.datetime.now(datetime.UTC)


def revocations(authority: Authority, *revoked: Certificate, days: int = 7) -> bytes:
    """The authority's list, of two weeks ago and good for so many days from now on."""
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    builder = builder.last_update(NOW - datetime.timedelta(days=14)).next_update(NOW + datetime.timedelta(days=days))
    for each in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number)
        builder = builder.add_revoked_certificate(entry.revocation_date(NOW).build())
    return builder.sign(authority._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def shaken_hands(server: ssl.SSLContext, client: Certificate) -> str:
    """What the server says of a client with this certificate: nothing, or why it is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with portable.unnamed_file(client.key_pem() + client.pem) as path:
        context.load_cert_chain(path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = context.wrap_bio(to_client, to_server)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (here, there, here, there):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return reason_of(error)
    return ""


@pytest.fixture
async def endpoints(stores):
    config = stores.config(ssl_client_auth="required")
    made = TlsEndpoints(config, config.parsed_listeners)
    yield made
    made.close()


async def renewed(endpoints, stores, *lists: bytes) -> ssl.SSLContext:
    stores.trust_file.write_bytes(b"".join((stores.authority.pem, *lists)))
    await endpoints.renew(stores.config(ssl_client_auth="required"))
    context: ssl.SSLContext = endpoints.acceptor("SSL").context
    return context


async def test_a_certificate_that_is_taken_back_is_refused_without_a_restart(stores, endpoints) -> None:
    ann, bob = stores.authority.issue("ann"), stores.authority.issue("bob")
    for each in (ann, bob):
        assert not shaken_hands(endpoints.acceptor("SSL").context, each)
    context = await renewed(endpoints, stores, revocations(stores.authority, bob))
    assert not shaken_hands(context, ann)
    assert "revoked" in shaken_hands(context, bob)


async def test_a_list_that_is_too_old_or_anothers_trusts_nobody(stores, endpoints) -> None:
    ann = stores.authority.issue("ann")
    context = await renewed(endpoints, stores, revocations(stores.authority, days=-1))
    assert "expired" in shaken_hands(context, ann)
    context = await renewed(endpoints, stores, revocations(Authority.make()))
    assert "unable to get certificate CRL" in shaken_hands(context, ann)


async def test_a_list_that_cannot_be_read_changes_nothing(stores, endpoints) -> None:
    ann, before = stores.authority.issue("ann"), endpoints.acceptor("SSL").context
    broken = b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"
    assert await renewed(endpoints, stores, broken) is before
    assert not shaken_hands(before, ann)
    with pytest.raises(ConfigError, match="revocation list"):
        endpoints.check(stores.config(ssl_client_auth="required"))
