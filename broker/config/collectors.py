"""Where spans and metrics are sent to, as the settings for that say it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from tidemark.broker.config.errors import ConfigError


def collector(endpoint: str, *, key: str, path: str) -> SplitResult:
    """The address of a collector of OTLP over HTTP, with the usual path if it names none. Raises ConfigError."""
    try:
        parts = urlsplit(endpoint)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise ConfigError(f"{key}: {endpoint!r} is not like http://host:4318{path}.", key=key, value=endpoint)
    return parts if parts.path not in ("", "/") else parts._replace(path=path)
