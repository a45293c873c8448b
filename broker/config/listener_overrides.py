"""Settings of one listener: `listener.name.NAME.KEY`, and for SASL `listener.name.NAME.MECHANISM.KEY`, as in Kafka.

They are kept under their full names. What counts on a listener is the table itself with these laid over it:
`config.of_listener("EXTERNAL").ssl_client_auth`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.broker.config.key import Key

PREFIX = "listener.name."


def overridden_key(name: str, keys: Mapping[str, Key]) -> Key | None:
    """The setting behind a prefixed name, under that name; None if `name` is no such name."""
    if not name.startswith(PREFIX):
        return None
    rest = name.removeprefix(PREFIX)
    while rest:
        _, _, rest = rest.partition(".")
        if rest in keys and keys[rest].per_listener:
            return replace(keys[rest], name=name)
    return None


def plain_name(name: str, keys: Mapping[str, Key]) -> str:
    """Of a prefixed name, the setting that it overrides; other names as they are."""
    while name not in keys and name:
        _, _, name = name.partition(".")
    return name


def overrides_of(
    texts: Mapping[str, str], keys: Mapping[str, Key], *, listener: str, mechanism: str | None = None
) -> dict[str, str]:
    """What is set for a listener, or for a mechanism on it, by the plain name of the setting."""
    found: dict[str, str] = {}
    prefixes = [f"{PREFIX}{listener.lower()}."]
    if mechanism is not None:
        prefixes.append(f"{prefixes[0]}{mechanism.lower()}.")
    for prefix in prefixes:
        for name, text in texts.items():
            rest = name.lower().removeprefix(prefix)
            if rest != name.lower() and rest in keys and keys[rest].per_listener:
                found[rest] = text
    return found


def without_listener(texts: Mapping[str, str], listeners: Sequence[str]) -> list[str]:
    """Prefixed names that none of the listeners has: a slip of the pen, perhaps."""
    prefixes = tuple(f"{PREFIX}{each.lower()}." for each in listeners)
    return [name for name in texts if not name.lower().startswith(prefixes)]
