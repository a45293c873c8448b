"""Secrets that stand elsewhere, and settings that hold several."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.broker.config import ConfigError, load_config
from tidemark.broker.config.jaas import parse_jaas, parse_users
from tidemark.broker.config.sasl import ListenerSasl


def test_a_password_stands_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").write_text("from a file\n")
    (tmp_path / "some.properties").write_text("one=1\ntwo=from an entry\n")
    monkeypatch.setenv("A_SECRET", "from the environment")
    for text, value in (
        ("${env:A_SECRET}", "from the environment"),
        (f"${{file:{tmp_path}/whole}}", "from a file"),
        (f"${{file:{tmp_path}/some.properties:two}}", "from an entry"),
        ("plain", "plain"),
        ("$HOME {x}", "$HOME {x}"),
    ):
        assert load_config(overrides={"sasl.node.password": text}).sasl_node_password == value


@pytest.mark.parametrize("text", ["${env:NOT_THERE}", "${file:/not/there}", "${file:/etc/hostname:entry}"])
def test_what_is_not_there_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.node\.password"):
        load_config(overrides={"sasl.node.password": text})


def test_users_in_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOB", 'b"o\\b')
    file = tmp_path / "broker.yaml"
    file.write_text("sasl.plain.users:\n  ann: secret\n  bob: ${env:BOB}\n  7: 8\n")
    assert ListenerSasl(load_config(file), "PLAINTEXT").plain_users == {"ann": "secret", "bob": 'b"o\\b', "7": "8"}


def test_users_in_jaas_lines_of_one_listener_and_mechanism() -> None:
    line = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="n" password="p" user_ann="a \\"b";'
    )
    config = load_config(
        overrides={
            "listeners": "OUT://127.0.0.1:0",
            "listener.security.protocol.map": "OUT:SASL_PLAINTEXT",
            "listener.name.out.plain.sasl.jaas.config": line,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        }
    )
    sasl = ListenerSasl(config, "OUT")
    assert sasl.plain_users == {"n": "p", "ann": 'a "b'}
    assert (sasl.login.user, sasl.login.password) == ("n", "p")
    assert "p" not in repr(parse_jaas(line, key="k")).replace("PlainLoginModule", "").replace("options", "")
    assert ListenerSasl(config, "OTHER").plain_users == {}


@pytest.mark.parametrize(
    "text", ["", "hush", "Module", "Module maybe a=b;", 'M required a="hush"', "M required a=b c;"]
)
def test_a_line_that_is_no_jaas_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(text, key="sasl.jaas.config")
    assert "hush" not in str(caught.value)
    assert "hush" not in str(caught.value.value)


@pytest.mark.parametrize("text", ["hush", "[]", '{"a": 1}', '{"": "x"}', '{"a": {"b": "c"}}'])
def test_users_that_are_none_are_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_users(text, key="sasl.plain.users")
    assert "hush" not in str(caught.value)


def test_tokens_need_an_issuer_an_audience_and_keys_unless_unsecured_ones_were_asked_for() -> None:
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    for key, value in (
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///keys"),
        ("sasl.oauthbearer.expected.issuer", "i"),
        ("sasl.oauthbearer.expected.audience", "a"),
    ):
        with pytest.raises(ConfigError, match=key):
            _ = ListenerSasl(load_config(overrides=settings), "PLAINTEXT").oauth
        settings[key] = value
    assert ListenerSasl(load_config(overrides=settings), "PLAINTEXT").oauth
    for key, value in (
        ("sasl.oauthbearer.unsecured.allow", "true"),
        (
            "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
        ),
    ):
        assert ListenerSasl(load_config(overrides={key: value}), "PLAINTEXT").allows_unsecured_tokens
