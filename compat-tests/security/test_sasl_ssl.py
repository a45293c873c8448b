"""TLS, a login and an authorizer together, as a cluster on an open network has them: every client, and Kafka's own
tools with `--command-config`."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from harness.java_programs import run_tools
from harness.sasl import ADMIN, broker_settings, java, librdkafka, properties
from harness.scram_users import Users
from harness.tls import Certificates
from harness.waiting import eventually
from security.test_sasl_clients import by_every_login
from security.test_sasl_java import CONFIGS, TOKENS, run_logins

ACLS = "org.apache.kafka.tools.AclCommand"
PAYROLL = "payroll"  # a topic that ann and bob have no right on


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(session_brokers, certificates):
    return session_brokers(
        {
            **broker_settings(protocol="SASL_SSL"),
            **certificates.broker_settings(client_auth="none"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",  # the latter on Kafka's controller listener; here nobody is
        }
    )


@pytest.fixture(scope="module")
def secured(certificates) -> dict[str, str]:
    """What librdkafka is told beside who logs in."""
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": certificates.ca}


@pytest.fixture(scope="module", autouse=True)
def users(broker, secured):
    """ann and bob, who may use topics and groups whose names begin with `test`."""
    users = Users(broker.bootstrap, secured)
    users.set("ann", "ann-secret")
    entries = [
        AclBinding(kind, "test", ResourcePatternType.PREFIXED, f"User:{user}", "*", AclOperation.ALL,
                   AclPermissionType.ALLOW)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        for user in ("ann", "bob")
    ]  # fmt: skip
    for future in users.admin.create_acls(entries).values():
        future.result(20)
    return users


@by_every_login
def test_confluent_kafka(broker, secured, topic, mechanism, user, password):
    settings = {**librdkafka(broker.bootstrap, mechanism, user, password), **secured}
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": f"test-{uuid.uuid4()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message.value() == b"hello"


def test_who_is_in_may_not_do_everything(broker, secured):
    settings = {**librdkafka(broker.bootstrap, "SCRAM-SHA-512", "ann", "ann-secret"), **secured}
    results: list[KafkaError] = []
    producer = Producer(settings)
    producer.produce(PAYROLL, b"x", on_delivery=lambda error, _message: results.append(error))
    producer.flush(20)
    assert results[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**settings, "group.id": "others", "auto.offset.reset": "earliest"})
    consumer.subscribe(["test"])
    assert consumer.poll(20).error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_rights_that_are_taken_away_and_given_back_count_for_clients_that_run(broker, secured, users):
    """A consumer in the middle of a fetch session, and a producer on a connection that it has."""
    topic, results = f"lent-{uuid.uuid4().hex[:8]}", []
    lent = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ann", "*", AclOperation.ALL,
                      AclPermissionType.ALLOW)  # fmt: skip
    may = AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ann", None, AclOperation.ANY,
                           AclPermissionType.ANY)  # fmt: skip
    users.admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    users.admin.create_acls([lent])[lent].result(20)
    settings = {**librdkafka(broker.bootstrap, "SCRAM-SHA-512", "ann", "ann-secret"), **secured}
    producer = Producer({**settings, "linger.ms": 0, "topic.metadata.refresh.interval.ms": 500})
    consumer = Consumer({**settings, "group.id": "test-lent", "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def written() -> KafkaError | None:
        results.clear()
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _message: results.append(error))
        except KafkaException as refused:  # librdkafka has seen it in the metadata
            return refused.args[0]
        producer.flush(20)
        return results[0]

    def read():
        message = consumer.poll(5)
        return None if message is None else message.error()

    assert written() is None
    assert eventually(lambda: (message := consumer.poll(5)) and message.value()) == b"x"
    users.admin.delete_acls([may])[may].result(20)
    eventually(lambda: (error := written()) is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    eventually(lambda: (error := read()) is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    users.admin.create_acls([lent])[lent].result(20)
    eventually(lambda: written() is None)
    eventually(lambda: (message := consumer.poll(5)) and not message.error())
    consumer.close()


def python_settings(broker, certificates, mechanism, user, password):
    """As kafka-python and aiokafka spell them."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=certificates.ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@by_every_login
def test_kafka_python(broker, certificates, topic, mechanism, user, password):
    from kafka import KafkaConsumer, KafkaProducer

    settings = python_settings(broker, certificates, mechanism, user, password)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"hello").get(20)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    assert next(consumer).value == b"hello"
    consumer.close()


@by_every_login
def test_aiokafka(broker, certificates, topic, mechanism, user, password):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    settings = python_settings(broker, certificates, mechanism, user, password)

    async def write_and_read() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"hello")
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            return (await asyncio.wait_for(consumer.getone(), 20)).value

    assert asyncio.run(write_and_read()) == b"hello"


def test_kcat(broker, secured, topic):
    """By PLAIN: see test_sasl_clients.py about its SCRAM."""
    settings = {**librdkafka(broker.bootstrap, "PLAIN", "bob", "bob-secret"), **secured}
    flags = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    kcat = shutil.which("kcat") or "kcat"
    subprocess.run([kcat, *flags, "-P", "-t", topic], input="hello", text=True, timeout=30, check=True)
    read = subprocess.run(
        [kcat, *flags, "-C", "-t", topic, "-e", "-q"], capture_output=True, text=True, timeout=30, check=True
    )
    assert read.stdout == "hello\n"


def test_who_does_not_trust_the_broker_tells_it_no_password(broker, secured, tmp_path):
    foreign = Certificates(tmp_path / "foreign")
    errors: list[KafkaError] = []
    settings = {**librdkafka(broker.bootstrap, "PLAIN", "bob", "bob-secret"), **secured, "ssl.ca.location": foreign.ca}
    producer = Producer({**settings, "error_cb": errors.append, "log_level": 0})
    eventually(lambda: producer.poll(0.1) or errors)
    assert errors[0].code() in (KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


# -- Java ------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, certificates: Certificates):
    """Properties files for `--command-config`."""
    tls = {"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": certificates.ca}

    def write(name: str, *login: str) -> str:
        path = tmp_path / f"{name}.properties"
        path.write_text(properties({**java(*login), **tls}))
        return str(path)

    return write


def test_the_java_client(broker, users, files):
    # Sasl.java makes topics `java-…`, and groups of the same names.
    entries = [
        AclBinding(kind, "java-", ResourcePatternType.PREFIXED, "User:*", "*", AclOperation.ALL,
                   AclPermissionType.ALLOW)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]  # fmt: skip
    for future in users.admin.create_acls(entries).values():
        future.result(20)
    cases = {
        "plain": files("plain", "PLAIN", "bob", "bob-secret"),
        "scram_512": files("scram_512", "SCRAM-SHA-512", "ann", "ann-secret"),
        "token": files("token", "SCRAM-SHA-512", "ann", "ann-secret"),
        "refused_scram": files("refused_scram", "SCRAM-SHA-512", "ann", "wrong"),
    }
    assert run_logins(broker.bootstrap, cases) == dict.fromkeys(cases, "")


def test_the_tools_of_kafka(broker, files):
    at = ["--bootstrap-server", broker.bootstrap, "--command-config", files("admin", "PLAIN", *ADMIN)]
    as_ann = ["--bootstrap-server", broker.bootstrap, "--command-config",
              files("ann", "SCRAM-SHA-512", "ann", "ann-secret")]  # fmt: skip
    dan = ["--entity-type", "users", "--entity-name", "dan"]
    orders = ["--topic", "orders", "--allow-principal", "User:dan", "--operation", "Read"]
    made, described, added, listed, removed, forbidden, token = run_tools(
        [CONFIGS, *at, "--alter", *dan, "--add-config", "SCRAM-SHA-256=[password=woof]"],
        [CONFIGS, *at, "--describe", *dan],
        [ACLS, *at, "--add", *orders],
        [ACLS, *at, "--list", "--topic", "orders"],
        [ACLS, *at, "--remove", "--force", *orders],
        [ACLS, *as_ann, "--list"],
        [TOKENS, *at, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:dan"],
    )
    assert "Completed updating" in made.checked().stdout
    assert "SCRAM-SHA-256=iterations=4096" in described.checked().stdout
    added.checked()
    assert "principal=User:dan, host=*, operation=READ" in listed.checked().stdout
    assert "User:dan" not in removed.checked().stdout.partition("Current ACLs")[2]
    assert "ClusterAuthorizationException" in forbidden.stdout + forbidden.stderr
    hmac = re.search(r"[A-Za-z0-9+/]{80,}={0,2}", token.checked().stdout)
    assert hmac, token.stdout
    renewed, expired = run_tools(
        [TOKENS, *at, "--renew", "--renew-time-period", "-1", "--hmac", hmac[0]],
        [TOKENS, *at, "--expire", "--expiry-time-period", "-1", "--hmac", hmac[0]],
    )
    assert "Completed renew operation" in renewed.checked().stdout
    assert "Completed expire operation" in expired.checked().stdout
