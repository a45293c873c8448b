"""Real clients on a broker with users and an authorizer: what they may not do fails as they expect it to fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import tidemark

SECONDS_MAX = 20
USERS = {"admin": "a-secret", "ann": "b-secret", "bob": "c-secret"}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{password}"' for name, password in USERS.items()
)
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    settings: dict[str, Any] = {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": JAAS + ";",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with tidemark.embedded(**settings) as running:
        yield running


@pytest.fixture
def settings(broker: Any) -> Any:
    def settings(user: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            "error_cb": lambda error: None,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    return settings


@pytest.fixture
def allow(settings: Any) -> Any:
    def allow(user: str, operation: AclOperation, kind: ResourceType, name: str) -> None:
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        admin = AdminClient(settings("admin"))
        for future in admin.create_acls([binding]).values():
            future.result(SECONDS_MAX)

    return allow


@pytest.fixture
def topic(settings: Any, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", "-").rstrip("]")
    admin = AdminClient(settings("admin"))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS_MAX)
    return name


def produced(settings: dict[str, Any], topic: str) -> str | None:
    """The name of the error, if there was one."""
    producer = Producer(settings)
    outcome: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(SECONDS_MAX)
    return None if outcome[0] is None else outcome[0].name()


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_needs_the_right_to_write(settings: Any, allow: Any, topic: str, idempotent: bool) -> None:
    ann = settings("ann", enable_idempotence=idempotent, message_timeout_ms=5000)
    assert produced(ann, topic) in ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_MSG_TIMED_OUT")
    allow("ann", WRITE, ResourceType.TOPIC, topic)
    assert produced(ann, topic) is None


def test_a_consumer_needs_its_topic_and_its_group(settings: Any, allow: Any, topic: str) -> None:
    assert produced(settings("admin"), topic) is None

    def read(**more: Any) -> str | bytes | None:
        consumer = Consumer(settings("bob", group_id=f"{topic}-group", auto_offset_reset="earliest", **more))
        consumer.subscribe([topic])
        try:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            error = message.error()
            return message.value() if error is None else error.name()
        finally:
            consumer.close()

    assert read() in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")
    allow("bob", READ, ResourceType.TOPIC, topic)
    assert read() == "GROUP_AUTHORIZATION_FAILED"
    allow("bob", READ, ResourceType.GROUP, f"{topic}-group")
    assert read() == b"value"


def test_a_transaction_needs_its_id(settings: Any, allow: Any, topic: str) -> None:
    allow("ann", WRITE, ResourceType.TOPIC, topic)
    ann = settings("ann", transactional_id=topic)
    with pytest.raises(KafkaException) as refused:
        Producer(ann).init_transactions(SECONDS_MAX)
    assert refused.value.args[0].name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    allow("ann", WRITE, ResourceType.TRANSACTIONAL_ID, topic)
    producer = Producer(ann)
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(SECONDS_MAX)


def test_topics_are_hidden_and_administration_is_refused(settings: Any, topic: str) -> None:
    bob = AdminClient(settings("bob"))
    assert topic not in bob.list_topics(timeout=SECONDS_MAX).topics
    for future in (bob.create_topics([NewTopic("bobs", 1, 1)])["bobs"], bob.delete_topics([topic])[topic]):
        with pytest.raises(KafkaException) as refused:
            future.result(SECONDS_MAX)
        assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
