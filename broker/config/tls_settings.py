"""The settings of TLS. Each may also be set for one listener, as `listener.name.NAME.…`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark.broker.config.key import Between, OneOf, Scope, boolean, integer, listing, password, string

STORE_TYPES = ("PEM", "PKCS12", "JKS")
VERSIONS = ("TLSv1.2", "TLSv1.3")
PER_BROKER: dict[str, Any] = {"scope": Scope.PER_BROKER, "per_listener": True}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TlsSettings:
    ssl_keystore_type: str = string(
        "JKS",
        "What the key store is: PEM (certificates and key as text), PKCS12, or JKS, which is accepted so that files"
        " written for Kafka work, and means PKCS12, as which Java has written its key stores since version 9.",
        check=OneOf(STORE_TYPES),
        **PER_BROKER,
    )
    ssl_keystore_location: str | None = string(
        None, "The file with the node's private key and its certificate chain.", **PER_BROKER
    )
    ssl_keystore_password: str | None = password(
        None, "The password of the key store; a PEM file has none.", **PER_BROKER
    )
    ssl_key_password: str | None = password(None, "The password of the private key, if it is encrypted.", **PER_BROKER)
    ssl_keystore_certificate_chain: str | None = password(
        None,
        "The node's certificate chain as PEM text, instead of a file; ssl.keystore.type must be PEM.",
        **PER_BROKER,
    )
    ssl_keystore_key: str | None = password(
        None,
        "The node's private key (PKCS#8) as PEM text, instead of a file; ssl.keystore.type must be PEM.",
        **PER_BROKER,
    )
    ssl_truststore_type: str = string(
        "JKS",
        "What the trust store is: PEM, PKCS12, or JKS, which is taken as for ssl.keystore.type.",
        check=OneOf(STORE_TYPES),
        **PER_BROKER,
    )
    ssl_truststore_location: str | None = string(
        None,
        "The file with the certificates of the authorities that clients and other nodes are trusted by; without one,"
        " those that the system trusts.",
        **PER_BROKER,
    )
    ssl_truststore_password: str | None = password(None, "The password of the trust store.", **PER_BROKER)
    ssl_truststore_certificates: str | None = password(
        None, "The trusted certificates as PEM text, instead of a file; ssl.truststore.type must be PEM.", **PER_BROKER
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients of a TLS listener show a certificate of their own: none, requested (it is checked if there is"
        " one), or required.",
        check=OneOf(("none", "requested", "required")),
        per_listener=True,
    )
    ssl_protocol: str = string(
        "TLSv1.3",
        "The newest version of TLS that is spoken.",
        check=OneOf(("TLSv1.2", "TLSv1.3", "TLS")),
        per_listener=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = listing(
        ("TLSv1.2", "TLSv1.3"), "The versions of TLS that are spoken.", check=OneOf(VERSIONS), per_listener=True
    )
    ssl_cipher_suites: tuple[str, ...] = listing(
        (),
        "The cipher suites that may be used, by their names in the standards or OpenSSL's; all that OpenSSL thinks safe"
        " when empty. Of those of TLS 1.3 only the first ones of TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256,"
        " TLS_AES_128_GCM_SHA256 can be chosen.",
        per_listener=True,
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes the name of its principal: rules of the form"
        " RULE:pattern/replacement/ with L or U behind it for lower or upper case, or DEFAULT, with commas between."
        " The first that matches counts.",
        per_listener=True,
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "Whether a node checks that the certificate of another names the host that it connected to: https, or empty for"
        " no check.",
        check=OneOf(("https", "")),
        per_listener=True,
    )
    ssl_allow_dn_changes: bool = boolean(
        False,
        "Whether a certificate that is renewed while the broker runs may have another distinguished name.",
        per_listener=True,
    )
    ssl_allow_san_changes: bool = boolean(
        False,
        "Whether a certificate that is renewed while the broker runs may lack alternative names of the one before.",
        per_listener=True,
    )
    tidemark_ssl_handshake_timeout_ms: int = integer(
        10_000,
        "How many milliseconds a client may take for the TLS handshake. Tidemark's own setting.",
        check=Between(1),
        per_listener=True,
    )
    tidemark_ssl_watch_interval_ms: int = integer(
        5_000,
        "How often, in milliseconds, the files of key and trust stores are looked at, so that renewed certificates are"
        " used without a restart; 0: never. Tidemark's own setting.",
        check=Between(0),
    )
