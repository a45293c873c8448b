"""The broker settings of logging in by SASL, and of delegation tokens."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.broker.config.key import Between, OneOf, boolean, class_name, integer, listing, long, password, string
from tidemark.broker.config.tls_settings import TlsSettings

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SaslSettings(TlsSettings):
    # How clients log in on SASL_PLAINTEXT and SASL_SSL listeners.
    sasl_enabled_mechanisms: tuple[str, ...] = listing(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "The mechanisms by which clients may log in on SASL_PLAINTEXT and SASL_SSL listeners.",
        check=OneOf(MECHANISMS),
        kafka_default="GSSAPI",
        per_listener=True,
    )
    sasl_plain_users: str | None = password(
        None,
        "The users of the mechanism PLAIN with their passwords: in YAML `ann: secret` lines under this key,"
        " otherwise a JSON object. Tidemark's own setting; Kafka's form, user_NAME in sasl.jaas.config, is read, too.",
        composite=True,
        per_listener=True,
    )
    sasl_jaas_config: str | None = password(
        None,
        'A JAAS line as Kafka has them: PLAIN\'s users (user_NAME="…"), and name and password that this node logs in'
        " with at others. Usually given per listener and mechanism: listener.name.NAME.MECHANISM.sasl.jaas.config.",
        composite=True,
        per_listener=True,
    )
    sasl_server_callback_handler_class: str | None = class_name(
        None,
        "A Python class, as package.module.Class, that decides about PLAIN logins: made once without arguments, its"
        " authenticate(user, password) returns whether they are right. It runs on a thread.",
        per_listener=True,
    )
    sasl_server_max_receive_size: int = integer(
        524_288, "How many bytes a request may have before its client has logged in.", check=Between(1)
    )
    connections_max_reauth_ms: int = long(
        0,
        "How many milliseconds a login lasts. After that a connection may only log in again (KIP-368), anything else"
        " closes it. 0: as long as the connection, or as the token that was used.",
        check=Between(0),
        per_listener=True,
    )
    connection_failed_authentication_delay_ms: int = integer(
        100,
        "How many milliseconds a failed login waits for its answer, so that guessing is slow.",
        check=Between(0),
    )
    # How nodes log in at each other.
    sasl_mechanism_inter_broker_protocol: str = string(
        "SCRAM-SHA-512",
        "The mechanism by which this node logs in at other brokers, if their listener asks for that.",
        check=OneOf(MECHANISMS),
        kafka_default="GSSAPI",
    )
    sasl_mechanism_controller_protocol: str = string(
        "SCRAM-SHA-512",
        "The mechanism by which this node logs in at controller listeners, if they ask for that.",
        check=OneOf(MECHANISMS),
        kafka_default="GSSAPI",
    )
    sasl_node_user: str | None = string(
        None,
        "The name that this node logs in with at others, and that every node accepts from others with"
        " sasl.node.password. Tidemark's own setting; Kafka's form is username in sasl.jaas.config.",
    )
    sasl_node_password: str | None = password(
        None, "The password of sasl.node.user, the same on all nodes of a cluster. Tidemark's own setting."
    )
    # OAUTHBEARER.
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None,
        "Where the keys are that tokens are signed with: a JWKS document behind http(s):// or file://.",
        per_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000,
        "How many milliseconds the keys are used before they are fetched again.",
        check=Between(1),
        per_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100,
        "How many milliseconds to wait before keys that could not be fetched are asked for again, doubled each time;"
        " and how long a key id that the keys do not have is not looked for again.",
        check=Between(1),
        per_listener=True,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000,
        "How many milliseconds to wait at most between two attempts to fetch the keys.",
        check=Between(1),
        per_listener=True,
    )
    sasl_oauthbearer_expected_issuer: str | None = string(
        None,
        "Who must have issued a token (claim iss). Required with OAUTHBEARER, as in Kafka 4.4.",
        per_listener=True,
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = listing(
        (),
        "Whom a token must be for (claim aud): one of these. Required with OAUTHBEARER, as in Kafka 4.4.",
        kafka_default="none",
        per_listener=True,
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30,
        "How many seconds the issuer's clock may be off when a token's times are checked.",
        check=Between(0),
        per_listener=True,
    )
    sasl_oauthbearer_scope_claim_name: str = string("scope", "The claim that has a token's scope.", per_listener=True)
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub", "The claim that has the name of the principal.", per_listener=True
    )
    sasl_oauthbearer_unsecured_allow: bool = boolean(
        False,
        "Whether tokens without a signature are accepted: for tests only, everybody can make them. Tidemark's own"
        " setting; Kafka accepts them unless told otherwise.",
        per_listener=True,
    )
    # How nodes get the tokens that they log in with at each other, by OAUTHBEARER.
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        None,
        "Where this node gets the token that it logs in with at others by OAUTHBEARER: an issuer's token endpoint"
        " behind http(s)://, asked with client id and secret, or a file:// that has the token in it.",
        per_listener=True,
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = string(
        None,
        "The client id that this node asks the token endpoint with; or clientId in sasl.jaas.config.",
        per_listener=True,
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(
        None,
        "The secret of that client id; or clientSecret in sasl.jaas.config.",
        per_listener=True,
    )
    sasl_oauthbearer_scope: str | None = string(
        None,
        "The scope that this node asks the token endpoint for; or scope in sasl.jaas.config.",
        per_listener=True,
    )
    # Delegation tokens.
    delegation_token_secret_key: str | None = password(
        None,
        "The key that delegation tokens are made with, the same on all nodes of a cluster. Without it there are none.",
    )
    delegation_token_max_lifetime_ms: int = long(
        604_800_000,
        "How many milliseconds a delegation token can live at most, however often it is renewed.",
        check=Between(1),
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000, "How many milliseconds a delegation token lives until it must be renewed.", check=Between(1)
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000,
        "How many milliseconds pass between two sweeps that remove expired delegation tokens.",
        check=Between(1),
    )
