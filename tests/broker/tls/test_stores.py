"""Every form of key and trust store that settings may name, and what is said of those that cannot be used."""

from __future__ import annotations

import pytest

from tidemark.broker.config import BrokerConfig, ConfigError, load_config
from tidemark.broker.tls.contexts import client_context, server_context
from tidemark.broker.tls.stores import read_stores


def contexts(config: BrokerConfig) -> None:
    read = read_stores(config)
    server_context(config, read)
    client_context(config, read)


def test_a_pem_file_holds_key_and_chain(stores) -> None:
    contexts(stores.config())


def test_an_encrypted_key_needs_its_password(stores) -> None:
    stores.write(stores.node, password="hunter2")
    contexts(stores.config(ssl_key_password="hunter2"))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        contexts(stores.config(ssl_key_password="wrong"))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        contexts(stores.config())


@pytest.mark.parametrize("newline", ["\n", "\\n"])
def test_stores_may_be_texts_also_on_one_line(stores, newline) -> None:
    config = load_config(
        overrides={
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": stores.node.key_pem().decode().replace("\n", newline),
            "ssl.keystore.certificate.chain": stores.node.pem.decode().replace("\n", newline),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": stores.authority.pem.decode().replace("\n", newline),
        }
    )
    contexts(config)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_file_is_read_by_either_of_its_names(stores, kind) -> None:
    store = stores.directory / "node.p12"
    store.write_bytes(stores.node.pkcs12("hunter2"))
    settings = {"ssl.keystore.type": kind, "ssl.keystore.location": str(store), "ssl.keystore.password": "hunter2"}
    contexts(load_config(overrides={**stores.settings, **settings}))
    trusting = {
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": "hunter2",
    }
    contexts(load_config(overrides={**stores.settings, **settings, **trusting}))
    with pytest.raises(ConfigError, match="password may be wrong"):
        contexts(load_config(overrides={**stores.settings, **settings, "ssl.keystore.password": "wrong"}))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "keytool -importkeystore"),
        (b"", "is empty"),
        (b"no store", "cannot be read"),
        (b"-----BEGIN NOTHING-----", "a private key and its certificate"),
    ],
)
def test_what_is_no_store_is_refused_with_a_reason(stores, data, reason) -> None:
    stores.key_file.write_bytes(data)
    with pytest.raises(ConfigError, match=reason):
        contexts(stores.config())


def test_a_file_that_is_missing_is_named(stores) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        contexts(stores.config(ssl_truststore_location="/nowhere.pem"))


def test_a_key_of_another_certificate_is_refused(stores) -> None:
    stores.key_file.write_bytes(stores.authority.issue("other").key_pem() + stores.node.pem)
    with pytest.raises(ConfigError, match="do not belong together"):
        contexts(stores.config())


def test_a_listener_without_a_key_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a key store"):
        contexts(load_config())


def test_secrets_are_not_in_what_is_printed(stores) -> None:
    stores.write(stores.node, password="hunter2")
    read = read_stores(stores.config(ssl_key_password="hunter2"))
    assert "hunter2" not in repr(read)
    assert "PRIVATE" not in repr(read)
