"""A broker where clients log in, and how each client is told to."""

from __future__ import annotations

from collections.abc import Mapping

ADMIN = ("admin", "admin-secret")  # a PLAIN user, who makes the others
PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret" user_admin="admin-secret" user_bob="bob-secret";'
)
SCRAM_JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin-secret";'
)


def broker_settings(*, protocol: str = "SASL_PLAINTEXT", **more: str) -> dict[str, str]:
    """In Kafka's own form, so that Apache Kafka takes them as well."""
    own = f"listener.name.{protocol.lower()}"
    return {
        "security.protocol": protocol,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": protocol,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{own}.plain.sasl.jaas.config": PLAIN_JAAS,
        f"{own}.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
        f"{own}.scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
        "delegation.token.secret.key": "only-brokers-know-it",
        "connection.failed.authentication.delay.ms": "20",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def librdkafka(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def java(mechanism: str, user: str, password: str, *, tokenauth: bool = False) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    options = f'username="{user}" password="{password}"' + (' tokenauth="true"' if tokenauth else "")
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {options};",
    }


def properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
