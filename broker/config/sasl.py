"""One listener's SASL settings: its own (`listener.name.NAME.…`), a mechanism's own, or the broker's."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.broker.config.broker import KEYS, BrokerConfig
from tidemark.broker.config.errors import ConfigError
from tidemark.broker.config.jaas import JaasLine, parse_jaas, parse_users
from tidemark.broker.config.key import Value
from tidemark.protocol.sasl.client import Login

OAUTH = "OAUTHBEARER"
PLAIN = "PLAIN"
# As Kafka 4.4: without them any token of the issuer's would do, whoever it was meant for.
REQUIRED_OAUTH = (
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience",
)
KAFKAS_UNSECURED_HANDLER = "OAuthBearerUnsecuredValidatorCallbackHandler"  # a Java class that people name here


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """Where a node gets the tokens that it logs in with at others."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ListenerSasl:
    config: BrokerConfig
    listener: str

    @property
    def mechanisms(self) -> tuple[str, ...]:
        found = self._value("sasl.enabled.mechanisms")
        assert isinstance(found, tuple)
        return found

    def max_reauth_ms(self, mechanism: str) -> int:
        found = self._value("connections.max.reauth.ms", mechanism)
        assert isinstance(found, int)
        return found

    @property
    def plain_callback_class(self) -> str | None:
        return self.text("sasl.server.callback.handler.class", PLAIN)

    @property
    def plain_users(self) -> dict[str, str]:
        """From the YAML form, JAAS lines, and the node's own login: all of them together."""
        key = "sasl.plain.users"
        users = dict((login,)) if (login := self.node_login) is not None else {}
        if (line := self.jaas(PLAIN)) is not None:
            users |= line.users
        if (text := self.text(key)) is not None:
            users |= parse_users(text, key=key)
        return users

    @property
    def node_login(self) -> tuple[str, str] | None:
        return self.login_at_others(self.node_mechanism)

    @property
    def node_mechanism(self) -> str:
        """By which nodes log in at each other on this listener."""
        names = [name.upper() for name in self.config.controller_listener_names]
        if self.listener in names:
            return self.config.sasl_mechanism_controller_protocol
        return self.config.sasl_mechanism_inter_broker_protocol

    @property
    def login(self) -> Login:
        """What this node logs in with at others' listener of this name."""
        mechanism, found = self.node_mechanism, self.node_login
        if found is None:
            raise ConfigError(
                f"sasl.node.user: nodes log in at each other on {self.listener}, and this or sasl.jaas.config"
                f" for {mechanism} must say as whom.",
                key="sasl.node.user",
            )
        return Login(mechanism=mechanism, user=found[0], password=found[1])

    @property
    def token_endpoint(self) -> TokenEndpoint:
        """For nodes that log in at each other by OAUTHBEARER."""
        config, line = self.config.of_listener(self.listener, mechanism=OAUTH), self.jaas(OAUTH)
        options = {} if line is None else line.options
        url = config.sasl_oauthbearer_token_endpoint_url
        client_id = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
        if url is None:
            key = "sasl.oauthbearer.token.endpoint.url"
            raise ConfigError(f"{key}: nodes log in at each other on {self.listener} by {OAUTH}, and need it.", key=key)
        if not url.startswith("file:") and not client_id:
            key = "sasl.oauthbearer.client.credentials.client.id"
            raise ConfigError(f"{key}: {url} must be asked with a client id.", key=key)
        return TokenEndpoint(
            url=url,
            client_id=client_id,
            client_secret=config.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", ""),
            scope=config.sasl_oauthbearer_scope or options.get("scope", ""),
        )

    def login_at_others(self, mechanism: str) -> tuple[str, str] | None:
        """Name and password that this node logs in with, and that it accepts from others."""
        if self.config.sasl_node_user is not None:
            if self.config.sasl_node_password is None:
                raise ConfigError("sasl.node.password: sasl.node.user needs it.", key="sasl.node.password")
            return self.config.sasl_node_user, self.config.sasl_node_password
        line = self.jaas(mechanism)
        if line is None or "username" not in line.options or "password" not in line.options:
            return None
        return line.options["username"], line.options["password"]

    @property
    def oauth(self) -> BrokerConfig:
        """The settings of OAUTHBEARER here; what must be said is said."""
        config = self.config.of_listener(self.listener, mechanism=OAUTH)
        if self.allows_unsecured_tokens:
            return config
        for key in REQUIRED_OAUTH:
            if not getattr(config, KEYS[key].attribute):
                raise ConfigError(f"{key}: OAUTHBEARER on the listener {self.listener} needs it.", key=key)
        return config

    @property
    def allows_unsecured_tokens(self) -> bool:
        config = self.config.of_listener(self.listener, mechanism=OAUTH)
        handler = config.sasl_server_callback_handler_class or ""
        return config.sasl_oauthbearer_unsecured_allow or handler.endswith(KAFKAS_UNSECURED_HANDLER)

    def jaas(self, mechanism: str) -> JaasLine | None:
        key = "sasl.jaas.config"
        text = self.text(key, mechanism)
        return None if text is None else parse_jaas(text, key=key)

    def text(self, key: str, mechanism: str = "") -> str | None:
        found = self._value(key, mechanism)
        return None if found is None else str(found)

    def _value(self, key: str, mechanism: str = "") -> Value:
        """A mechanism's own first, then the listener's own, then the broker's."""
        config = self.config.of_listener(self.listener, mechanism=mechanism or None)
        found: Value = getattr(config, KEYS[key].attribute)
        return found
