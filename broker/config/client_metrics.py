"""The settings of a subscription to clients' metrics (KIP-714): what is wanted, how often, and of which clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tidemark.broker.config.errors import ConfigError, did_you_mean
from tidemark.broker.config.key import Between, Key, Scope, integer, keys_of, listing

MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


COMPILED_BYTES_MAX: Final = 1 << 20


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    metrics: tuple[str, ...] = listing(
        (),
        "The beginnings of the names of the metrics that are asked for; * asks for all.",
        scope=Scope.CLIENT_METRICS,
    )
    interval_ms: int = integer(
        300_000,
        "How many milliseconds clients wait between two pushes.",
        check=Between(100, 3_600_000),
        scope=Scope.CLIENT_METRICS,
    )
    match: tuple[str, ...] = listing(
        (),
        "Of which clients: name=regular expression, and all of them must match. Names are client_instance_id,"
        " client_id, client_software_name, client_software_version, client_source_address and client_source_port.",
        scope=Scope.CLIENT_METRICS,
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str]) -> ClientMetricsConfig:
        """`overrides` are valid."""
        keys = CLIENT_METRICS_KEYS
        return cls(**{keys[name].attribute: keys[name].parse(text) for name, text in overrides.items()})  # type: ignore[arg-type]

    @property
    def patterns(self) -> dict[str, Pattern]:
        """What `match` says. Raises ConfigError."""
        found: dict[str, Pattern] = {}
        for text in self.match:
            name, equals, pattern = text.partition("=")
            name = name.strip()
            if not equals or name not in MATCHED:
                raise _illegal(text, f"it must be name=pattern, the name one of {', '.join(MATCHED)}")
            found[name] = _compiled(text, pattern.strip())
        return found


CLIENT_METRICS_KEYS: Mapping[str, Key] = keys_of(ClientMetricsConfig)


def client_metrics_key(name: str) -> Key:
    try:
        return CLIENT_METRICS_KEYS[name]
    except KeyError:
        hint = did_you_mean(name, CLIENT_METRICS_KEYS)
        raise ConfigError(f"{name}: there is no such setting of client metrics{hint}.", key=name) from None


def validate_client_metrics_configs(overrides: Mapping[str, str]) -> None:
    """Raise a ConfigError unless a subscription may have these settings."""
    for name, value in overrides.items():
        client_metrics_key(name).parse(value)
    _ = ClientMetricsConfig.resolve(overrides).patterns


def _compiled(text: str, pattern: str) -> Pattern:
    """By RE2, which takes no longer than the text is long, whatever the expression."""
    import re2  # type: ignore[import-untyped]  # on first use: few brokers have a subscription

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = COMPILED_BYTES_MAX
    try:
        compiled: Pattern = re2.compile(pattern, options)
        return compiled
    except re2.error:
        raise _illegal(text, "it has no regular expression that RE2 takes") from None


def _illegal(text: str, problem: str) -> ConfigError:
    return ConfigError(f"match: {text!r} is not allowed; {problem}.", key="match", value=text)
