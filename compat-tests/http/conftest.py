"""One broker that serves HTTP in the clear; and one with TLS, certificates, passwords and tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.broker_process import Tidemark
from harness.oidc import AUDIENCE, ISSUER, Issuer, serving
from harness.ports import free_port
from harness.tls import Certificates

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class HttpBroker(Tidemark):
    """`urls`: of its HTTP listeners, by name."""

    urls: dict[str, str]


@pytest.fixture(scope="session")
def http_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    port = free_port()
    settings = {
        "http.listeners": f"HTTP://127.0.0.1:{port}",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "http.request.timeout.ms": "5000",
    }
    process = HttpBroker(tmp_path_factory.mktemp("broker"), settings=settings)
    process.urls = {"HTTP": f"http://127.0.0.1:{port}"}
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "ann", "eve")


@pytest.fixture(scope="module")
def secure_http_broker(
    tmp_path_factory: pytest.TempPathFactory, issuer: Issuer, certificates: Certificates
) -> Iterator[HttpBroker]:
    """CERTS wants a certificate, LOGINS a password or a token, both over TLS. Only ann may do anything."""
    ports = {"CERTS": free_port(), "LOGINS": free_port()}
    with serving(issuer) as oidc_url:
        settings = {
            "http.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CERTS:SSL,LOGINS:SASL_SSL",
            **certificates.broker_settings(client_auth="none"),
            "listener.name.certs.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+).*$/$1/,DEFAULT",
            "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.plain.users": '{"ann": "plain-secret", "bob": "hidden"}',
            "sasl.oauthbearer.jwks.endpoint.url": f"{oidc_url}/keys",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": "20",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ann;User:ANONYMOUS",
        }
        process = HttpBroker(tmp_path_factory.mktemp("broker"), settings=settings)
        process.urls = {name: f"https://127.0.0.1:{port}" for name, port in ports.items()}
        process.start()
        yield process
        process.stop()
