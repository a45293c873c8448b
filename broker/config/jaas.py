"""JAAS lines as Kafka's settings have them: `LoginModule required option="value" …;`, and the users in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.broker.config.errors import ConfigError
from tidemark.broker.config.secrets import resolve

USER_PREFIX = "user_"
FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][\w.$@-]*)\s*=\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\s";]+)))"""
)
_START = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasLine:
    """One login module. Its `repr` shows no option: passwords are among them."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """PLAIN's: `user_NAME="password"`."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX) and name != USER_PREFIX
        }


def parse_jaas(text: str, *, key: str) -> JaasLine:
    start = _START.match(text)
    if start is None or start["flag"].lower() not in FLAGS:
        raise _refused(key)
    options: dict[str, str] = {}
    position = start.end()
    while found := _TOKEN.match(text, position):
        value = re.sub(r"\\(.)", r"\1", found["quoted"]) if found["quoted"] is not None else found["bare"]
        options[found["name"]] = resolve(value, key=key)
        position = found.end()
    if text[position:].strip() != ";":
        raise _refused(key)
    return JaasLine(module=start["module"].rpartition(".")[2], options=options)


def parse_users(text: str, *, key: str) -> dict[str, str]:
    """A JSON object (YAML's lines have become one): passwords by name."""
    try:
        users = json.loads(text)
    except ValueError:
        users = None
    if not isinstance(users, dict) or not all(name and isinstance(value, str) for name, value in users.items()):
        raise ConfigError(f"{key}: a secret is not allowed; it must be name: password pairs.", key=key)
    return {name: resolve(value, key=key) for name, value in users.items()}


def _refused(key: str) -> ConfigError:
    """Without the text: it holds passwords."""
    message = f'{key}: a secret is not allowed; it must be a line like: LoginModule required username="…" password="…";'
    return ConfigError(message, key=key)
