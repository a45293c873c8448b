from __future__ import annotations

import pytest
from harness.oidc import AUDIENCE, ISSUER, Issuer, serving
from harness.sasl import broker_settings
from harness.scram_users import Users


@pytest.fixture(scope="module")
def secure_broker(session_brokers):
    return session_brokers(broker_settings())


@pytest.fixture(scope="module")
def users(secure_broker):
    users = Users(secure_broker.bootstrap)
    users.set("ann", "ann-secret")
    return users


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


@pytest.fixture(scope="module")
def oidc_url(issuer):
    with serving(issuer) as url:
        yield url


@pytest.fixture(scope="module")
def oauth_broker(session_brokers, oidc_url):
    """PLAIN for the broker itself, as Kafka needs it; OAUTHBEARER for clients."""
    return session_brokers(
        {
            **broker_settings(),
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{oidc_url}/keys",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "500",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
        }
    )
