"""Secrets that do not stand in the configuration itself: a setting says where, as in Kafka's configuration providers.

    ${env:NAME}            an environment variable
    ${file:/path}          a file's contents, without the line end
    ${file:/path:key}      one key of a properties file

These need not be switched on (`config.providers`). They work in settings of the type password; in those that hold
several secrets (users, JAAS lines) each may be given this way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tidemark.broker.config.errors import ConfigError

HIDDEN = "[hidden]"  # as Kafka's tools print a secret
SECRET_BYTES_MAX = 1 << 20

_REFERENCE = re.compile(r"\$\{(env|file):([^{}:]+)(?::([^{}:]+))?\}")


def resolve(text: str, *, key: str) -> str:
    """The text with what it refers to in its place. A ConfigError names the place, never a secret."""
    return _REFERENCE.sub(lambda found: _value(found, key), text)


def _value(found: re.Match[str], key: str) -> str:
    provider, place, entry = found.groups()
    if provider == "env":
        value = os.environ.get(place)
        if value is None:
            raise ConfigError(f"{key}: there is no environment variable {place}.", key=key)
        return value
    text = read_secret(Path(place), key=key)
    return text if entry is None else _entry(text, place, entry, key)


def read_secret(path: Path, *, key: str) -> str:
    """A file's contents, without the line end that editors add."""
    try:
        with path.open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}.", key=key) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: {path} is not UTF-8 text.", key=key) from None


def _entry(text: str, place: str, entry: str, key: str) -> str:
    from tidemark.broker.config.files import parse_properties

    values = parse_properties(text)
    if entry not in values:
        raise ConfigError(f"{key}: {place} has no {entry}.", key=key)
    return values[entry]
