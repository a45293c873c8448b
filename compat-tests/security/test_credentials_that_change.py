"""librdkafka while it runs: a password that is changed, a user that is deleted, logins that end."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, Producer
from harness.sasl import broker_settings, librdkafka
from harness.scram_users import Users
from harness.waiting import eventually


@pytest.fixture(scope="module")
def short_logins(session_brokers):
    """Logins last two seconds, so that whatever changes is noticed soon."""
    return session_brokers(broker_settings(connections_max_reauth_ms="2000"))


def producer_of(broker, user: str, password: str, errors: list[KafkaError]) -> Producer:
    settings = librdkafka(broker.bootstrap, "SCRAM-SHA-512", user, password)
    return Producer({**settings, "error_cb": errors.append, "topic.metadata.refresh.interval.ms": "500"})


def delivered(producer: Producer, topic: str) -> bool:
    results: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _message: results.append(error))
    producer.flush(20)
    return results == [None]


def test_a_client_that_stays_is_not_disturbed_when_its_login_is_renewed(short_logins, topic):
    users, errors = Users(short_logins.bootstrap), []
    users.set("stays", "one")
    producer = producer_of(short_logins, "stays", "one", errors)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert delivered(producer, topic)
    assert not errors


def test_a_user_that_is_deleted_is_out_when_its_login_ends(short_logins, topic):
    users, errors = Users(short_logins.bootstrap), []
    users.set("goes", "one")
    producer = producer_of(short_logins, "goes", "one", errors)
    assert delivered(producer, topic)
    users.delete("goes")
    eventually(lambda: producer.poll(0.1) or any(each.code() == KafkaError._AUTHENTICATION for each in errors))


def test_a_password_that_is_changed_counts_from_the_next_login_on(short_logins, topic):
    users, errors = Users(short_logins.bootstrap), []
    users.set("turns", "one")
    before = producer_of(short_logins, "turns", "one", errors)
    assert delivered(before, topic)
    users.set("turns", "two")
    assert delivered(producer_of(short_logins, "turns", "two", []), topic)
    eventually(lambda: before.poll(0.1) or any(each.code() == KafkaError._AUTHENTICATION for each in errors))
    before.set_sasl_credentials("turns", "two")
    eventually(lambda: delivered(before, topic))
