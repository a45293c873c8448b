"""OAUTHBEARER against a small issuer: librdkafka, and (in test_sasl_java.py) the Java client."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, Producer
from harness.oidc import Issuer
from harness.waiting import eventually

LIFETIME_SECONDS = 8


@pytest.fixture
def client(oauth_broker):
    def client(token, errors: list[KafkaError] | None = None, *, lifetime_seconds: int = 300) -> Producer:
        """`token()` makes a fresh one for each login."""

        def refresh(_config: str) -> tuple[str, float]:
            made = token()
            return made, time.time() + lifetime_seconds

        return Producer(
            {
                "bootstrap.servers": oauth_broker.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "oauth_cb": refresh,
                "error_cb": (errors if errors is not None else []).append,
            }
        )

    return client


def is_delivered(producer: Producer, topic: str) -> bool:
    results: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _message: results.append(error))
    producer.flush(20)
    return results == [None]


def test_a_token_of_the_issuer_lets_in(issuer: Issuer, client, topic):
    assert is_delivered(client(lambda: issuer.token("ann")), topic)


@pytest.mark.parametrize("changes", [{"exp": 1}, {"aud": "others"}, {"iss": "https://other.test"}, {"sub": ""}])
def test_other_tokens_do_not(issuer: Issuer, client, changes):
    errors: list[KafkaError] = []
    producer = client(lambda: issuer.token("ann", **changes), errors)
    eventually(lambda: producer.poll(0.1) or any(each.code() == KafkaError._AUTHENTICATION for each in errors))


def test_a_token_that_ends_while_a_client_runs_locks_it_out_unless_there_is_another(issuer: Issuer, client, topic):
    errors: list[KafkaError] = []
    lasting = [issuer.token("ann", exp=int(time.time()) + LIFETIME_SECONDS)]  # the first; later ones have ended
    producer = client(
        lambda: lasting.pop() if lasting else issuer.token("ann", exp=1), errors, lifetime_seconds=LIFETIME_SECONDS
    )
    assert is_delivered(producer, topic)

    def is_locked_out() -> bool:
        producer.produce(topic, b"x")
        producer.poll(0.1)
        return any(each.code() == KafkaError._AUTHENTICATION for each in errors)

    eventually(is_locked_out, seconds_max=60)


def test_a_new_key_of_the_issuer_is_found(issuer: Issuer, client, topic):
    assert is_delivered(client(lambda: issuer.token("ann")), topic)
    issuer.rotate("second")
    eventually(lambda: is_delivered(client(lambda: issuer.token("ann")), topic), seconds_max=40)
