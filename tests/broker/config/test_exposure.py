"""A start says once which listeners let everybody in."""

import pytest

from tidemark.broker.config import load_config

TLS = {"listeners": "SSL://0.0.0.0:9093", "advertised.listeners": "SSL://broker.example:9093"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, ""),
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, ""),
        ({"listeners": "PLAINTEXT://localhost:1"}, ""),
        ({"listeners": "PLAINTEXT://[::1]:1"}, ""),
        ({"listeners": "PLAINTEXT://:1"}, "PLAINTEXT://:1"),
        ({"listeners": "PLAINTEXT://10.0.0.1:1"}, "PLAINTEXT://10.0.0.1:1"),
        (TLS, "SSL://0.0.0.0:9093"),
        ({**TLS, "ssl.client.auth": "requested"}, "SSL://0.0.0.0:9093"),
        ({**TLS, "ssl.client.auth": "required"}, ""),
        ({**TLS, "listener.name.ssl.ssl.client.auth": "required"}, ""),
        ({"listeners": "SASL_PLAINTEXT://10.0.0.1:1"}, ""),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://10.0.0.1:2", "controller.listener.names": "CONTROLLER"},
            "CONTROLLER://10.0.0.1:2",
        ),
    ],
)
def test_listeners_that_let_everybody_in_are_named(settings: dict[str, str], named: str) -> None:
    said = [each for each in load_config(overrides=settings).warnings if "without" in each]
    assert len(said) == (1 if named else 0)
    assert named in "".join(said)


@pytest.mark.parametrize(
    ("super_users", "may"), [("User:ann", "whatever User:ANONYMOUS"), ("User:ANONYMOUS", "anything")]
)
def test_with_an_authorizer_they_may_what_nobody_in_particular_may(super_users: str, may: str) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"listeners": "PLAINTEXT://10.0.0.1:1", "authorizer.class.name": authorizer, "super.users": super_users}
    (said,) = (each for each in load_config(overrides=settings).warnings if "without" in each)
    assert f"may do {may}" in said
