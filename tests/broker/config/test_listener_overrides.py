"""Settings of one listener are laid over those of all."""

from pathlib import Path

import pytest

from tidemark.broker.config import ConfigError, Source, describe_broker, load_config

LISTENERS = {
    "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
}


def test_a_listener_has_its_own_value_and_others_the_common_one() -> None:
    config = load_config(
        overrides={**LISTENERS, "ssl.client.auth": "required", "listener.name.a.ssl.client.auth": "none"}
    )
    assert config.of_listener("A").ssl_client_auth == "none"
    assert config.of_listener("B").ssl_client_auth == config.ssl_client_auth == "required"


def test_what_is_set_for_a_mechanism_wins_over_what_is_set_for_its_listener() -> None:
    texts = {"listener.name.a.ssl.key.password": "listener", "listener.name.a.plain.ssl.key.password": "mechanism"}
    config = load_config(overrides={**LISTENERS, **texts})
    assert config.of_listener("A").ssl_key_password == "listener"
    assert config.of_listener("A", mechanism="PLAIN").ssl_key_password == "mechanism"
    assert config.of_listener("A", mechanism="SCRAM-SHA-256").ssl_key_password == "listener"


def test_a_value_that_is_not_allowed_is_refused_under_its_full_name() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.a\.ssl\.client\.auth: 'maybe' is not allowed"):
        load_config(overrides={**LISTENERS, "listener.name.a.ssl.client.auth": "maybe"})


def test_only_settings_that_listeners_have_can_be_set_for_one() -> None:
    with pytest.raises(ConfigError, match="Kafka has this setting"):
        load_config(overrides={**LISTENERS, "listener.name.a.num.partitions": "3"})


def test_a_listener_that_does_not_exist_is_told(tmp_path: Path) -> None:
    config = load_config(overrides={**LISTENERS, "listener.name.c.ssl.client.auth": "none"})
    assert any("listener.name.c.ssl.client.auth" in each for each in config.warnings)
    assert not load_config(overrides={**LISTENERS, "listener.name.b.ssl.client.auth": "none"}).warnings


def test_a_dynamic_change_may_name_a_listener() -> None:
    config = load_config(overrides={**LISTENERS, "ssl.keystore.location": "/old"})
    changed = config.with_values({"listener.name.a.ssl.keystore.location": "/new"})
    assert (changed.of_listener("A").ssl_keystore_location, changed.of_listener("B").ssl_keystore_location) == (
        "/new",
        "/old",
    )
    with pytest.raises(ConfigError, match="cannot be changed while the broker runs"):
        config.with_values({"listener.name.a.ssl.client.auth": "required"})


def test_descriptions_show_them_with_the_common_setting_behind_and_without_secrets() -> None:
    texts = {"listener.name.a.ssl.keystore.location": "/a", "ssl.keystore.location": "/all"}
    secrets = {"listener.name.a.ssl.keystore.password": "hunter2"}
    described = describe_broker(
        load_config(overrides={**LISTENERS, **texts, **secrets}), dynamic_cluster={}, dynamic_broker={}
    )
    entries = {each.name: each for each in described}
    entry = entries["listener.name.a.ssl.keystore.location"]
    assert (entry.value, entry.source) == ("/a", Source.STATIC_BROKER_CONFIG)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        ("listener.name.a.ssl.keystore.location", "/a"),
        ("ssl.keystore.location", "/all"),
    ]
    assert "hunter2" not in repr(described)
    assert entries["listener.name.a.ssl.keystore.password"].sensitive


@pytest.mark.parametrize(
    ("texts", "listener"),
    [({}, "A"), ({"inter.broker.listener.name": "B"}, "B"), ({"inter.broker.listener.name": "b"}, "B")],
)
def test_brokers_use_the_listener_that_is_named_or_the_first(texts: dict[str, str], listener: str) -> None:
    assert load_config(overrides={**LISTENERS, **texts}).parsed_inter_broker_listener_name == listener


def test_an_inter_broker_protocol_names_the_listener_of_its_name() -> None:
    plain = {"listeners": "B://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    mapped = {"listener.security.protocol.map": "B:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    protocol = {"security.inter.broker.protocol": "PLAINTEXT"}
    config = load_config(overrides={**plain, **mapped, **protocol})
    assert config.parsed_inter_broker_listener_name == "PLAINTEXT"
    with pytest.raises(ConfigError, match="only one of them"):
        load_config(overrides={**plain, **mapped, **protocol, "inter.broker.listener.name": "B"})
    with pytest.raises(ConfigError, match=r"security\.inter\.broker\.protocol: SSL is not among"):
        load_config(overrides={**plain, **mapped, "security.inter.broker.protocol": "SSL"})
