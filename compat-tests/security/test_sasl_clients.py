"""Every client logs in, writes and reads; and does not get in with a wrong password."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from harness.sasl import librdkafka
from harness.waiting import eventually

LOGINS = [
    ("PLAIN", "bob", "bob-secret"),
    ("SCRAM-SHA-256", "ann", "ann-secret"),
    ("SCRAM-SHA-512", "ann", "ann-secret"),
]
by_every_login = pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)

pytestmark = pytest.mark.usefixtures("users")


@by_every_login
def test_confluent_writes_and_reads(secure_broker, topic, mechanism, user, password):
    settings = librdkafka(secure_broker.bootstrap, mechanism, user, password)
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message.value() == b"hello"


@pytest.mark.parametrize(
    ("mechanism", "user", "password", "told"),
    [
        ("PLAIN", "bob", "wrong", "Invalid username or password"),
        ("PLAIN", "nobody", "bob-secret", "Invalid username or password"),
        ("SCRAM-SHA-512", "ann", "wrong", "invalid credentials with SASL mechanism SCRAM-SHA-512"),
        ("SCRAM-SHA-256", "nobody", "ann-secret", "invalid credentials with SASL mechanism SCRAM-SHA-256"),
        ("OAUTHBEARER", "ann", "x", ""),
    ],
)
def test_librdkafka_is_told_why_it_does_not_get_in(secure_broker, mechanism, user, password, told):
    errors: list[KafkaError] = []
    settings = librdkafka(secure_broker.bootstrap, mechanism, user, password)
    if mechanism == "OAUTHBEARER":
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ann"}
    producer = Producer({**settings, "error_cb": errors.append})
    eventually(lambda: producer.poll(0.1) or errors)
    assert errors[0].code() in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
    assert told in errors[0].str()


def python_settings(broker, mechanism, user, password):
    """As kafka-python and aiokafka spell them."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@by_every_login
def test_kafka_python_writes_and_reads(secure_broker, topic, mechanism, user, password):
    from kafka import KafkaConsumer, KafkaProducer

    settings = python_settings(secure_broker, mechanism, user, password)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"hello").get(20)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    assert next(consumer).value == b"hello"
    consumer.close()


@by_every_login
def test_aiokafka_writes_and_reads(secure_broker, topic, mechanism, user, password):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    settings = python_settings(secure_broker, mechanism, user, password)

    async def write_and_read() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"hello")
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    assert asyncio.run(write_and_read()) == b"hello"


# Not by SCRAM: the librdkafka of distributions' kcat (before 2.6.1) repeats its nonce, which Kafka refuses since
# CVE-2024-56128, and so do we.
@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS[:1])
def test_kcat_writes_and_reads(secure_broker, topic, mechanism, user, password):
    settings = librdkafka(secure_broker.bootstrap, mechanism, user, password)
    flags = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    kcat = shutil.which("kcat") or "kcat"
    subprocess.run([kcat, *flags, "-P", "-t", topic], input="hello", text=True, timeout=30, check=True)
    read = subprocess.run(
        [kcat, *flags, "-C", "-t", topic, "-e", "-q"], capture_output=True, text=True, timeout=30, check=True
    )
    assert read.stdout == "hello\n"
