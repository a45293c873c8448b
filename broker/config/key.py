"""What a setting is: its type, bounds, default, scope and meaning, declared as a dataclass field.

A table of settings is a frozen dataclass whose fields are made by `integer`, `long`, `boolean`, `double`, `string`,
`password`, `class_name` and `listing`. The attribute's name is the Kafka name with underscores for dots, so each name
is written once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum, IntEnum
from typing import Any, TypeAlias, TypeVar

from tidemark.broker.config.errors import ConfigError

Value: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"

V = TypeVar("V", bound=Value)
Whole = TypeVar("Whole", int, None)
Text = TypeVar("Text", str, None)
Items = TypeVar("Items", tuple[str, ...], None)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class Type(IntEnum):
    """Kafka's types of settings; the numbers are those of a DescribeConfigs answer."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    """How a setting can be changed while the broker runs. The values are Kafka's words for its update modes."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


WHOLE_NUMBERS = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}
TYPE_PHRASES = {
    Type.BOOLEAN: "true or false",
    Type.STRING: "a string",
    Type.INT: "a whole number",
    Type.SHORT: "a whole number",
    Type.LONG: "a whole number",
    Type.DOUBLE: "a number",
    Type.LIST: "a comma-separated list",
    Type.CLASS: "a class name",
    Type.PASSWORD: "a secret string",
}
BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Between:
    """Numbers from `low` to `high`, and the few values in `also`."""

    low: float
    high: float | None = None
    also: tuple[int, ...] = ()

    def allows(self, value: Any) -> bool:
        return value in self.also or (self.low <= value and (self.high is None or value <= self.high))

    def phrase(self, subject: str) -> str:
        bounds = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return " or ".join([f"{subject} {bounds}", *map(str, self.also)])


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words; of a list, every item is one of them."""

    words: tuple[str, ...]

    def allows(self, value: Any) -> bool:
        items = (value,) if isinstance(value, str) else value
        return all(item in self.words for item in items)

    def phrase(self, subject: str) -> str:
        words = ", ".join(self.words)
        return f"a comma-separated list out of {words}" if "list" in subject else f"one of {words}"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """A list of partition:broker pairs, or * for all, or nothing."""

    def allows(self, value: Any) -> bool:
        return value in ((), ("*",)) or all(re.fullmatch(r"\d+:\d+", item) for item in value if item)

    def phrase(self, subject: str) -> str:
        return f"* or {subject} of partition:broker pairs"


@dataclass(frozen=True, slots=True)
class Origins:
    """As browsers tell them: with a path, or a slash at the end, none would ever be the same."""

    def allows(self, value: Any) -> bool:
        return all(item == "*" or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+", item) for item in value)

    def phrase(self, subject: str) -> str:
        return f"{subject} of origins such as https://app.example:8443, or *"


Check: TypeAlias = "Between | OneOf | ThrottledReplicas | Origins"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A broker setting that stands in for a topic setting; `scale` converts its unit."""

    name: str
    scale: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting."""

    name: str
    type: Type
    default: Value
    doc: str
    scope: Scope = Scope.READ_ONLY
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False
    """Left out of listings unless it is set."""
    idle: str | None = None
    """Why the setting is accepted but changes nothing yet, or None if it works."""
    kafka_default: str | None = None
    """Kafka's default, where ours differs on purpose."""
    composite: bool = False
    """It holds several secrets: what it refers to is looked up after it is taken apart."""
    per_listener: bool = False
    """Whether one listener may have a value of its own, under `listener.name.NAME.`."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.scope is Scope.READ_ONLY

    @property
    def allowed(self) -> str:
        """What a value must be, for error messages and documentation."""
        phrase = TYPE_PHRASES[self.type]
        return self.check.phrase(phrase) if self.check else phrase

    def parse(self, text: str) -> Value:
        """The value that `text` says, or a ConfigError."""
        if self.sensitive and not self.composite and "${" in text:
            from tidemark.broker.config.secrets import resolve

            text = resolve(text, key=self.name)
        try:
            value: Value = _PARSERS[self.type](text.strip())
        except (ValueError, KeyError):
            raise self._refusal(text) from None
        if not self._allows(value):
            raise self._refusal(text)
        return value

    def format(self, value: Value) -> str | None:
        """The value as Kafka prints it; None stays None, and a secret is not shown."""
        if value is None or self.sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return repr(value).replace("e+", "E").replace("e", "E")  # as Java prints a double
        return str(value)

    def _allows(self, value: Value) -> bool:
        bits = WHOLE_NUMBERS.get(self.type)
        if bits is not None and not (isinstance(value, int) and -(2**bits) <= value < 2**bits):
            return False
        return self.check is None or self.check.allows(value)

    def _refusal(self, text: str) -> ConfigError:
        shown = "a secret" if self.sensitive else repr(text)
        message = f"{self.name}: {shown} is not allowed; it must be {self.allowed}."
        return ConfigError(message, key=self.name, value=None if self.sensitive else text)


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):  # int() would also take 1_000 and other alphabets' digits
        raise ValueError(text)
    return int(text[:25])  # far past any bound already; int() of a huge text is slow


def _number(text: str) -> float:
    value = float(text)
    if value != value:
        raise ValueError(text)
    return value


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_PARSERS: Mapping[Type, Any] = {
    Type.BOOLEAN: lambda text: BOOLEANS[text.lower()],
    Type.STRING: str,
    Type.INT: _whole_number,
    Type.SHORT: _whole_number,
    Type.LONG: _whole_number,
    Type.DOUBLE: _number,
    Type.LIST: _items,
    Type.CLASS: str,
    Type.PASSWORD: str,
}


def _declare(type_: Type, default: V, doc: str, **rest: Any) -> V:
    return field(default=default, metadata={"key": Key(name="", type=type_, default=default, doc=doc, **rest)})


def integer(default: Whole, doc: str, **rest: Any) -> Whole:
    return _declare(Type.INT, default, doc, **rest)


def short(default: Whole, doc: str, **rest: Any) -> Whole:
    return _declare(Type.SHORT, default, doc, **rest)


def long(default: Whole, doc: str, **rest: Any) -> Whole:
    return _declare(Type.LONG, default, doc, **rest)


def boolean(default: bool, doc: str, **rest: Any) -> bool:
    return _declare(Type.BOOLEAN, default, doc, **rest)


def double(default: float, doc: str, **rest: Any) -> float:
    return _declare(Type.DOUBLE, default, doc, **rest)


def string(default: Text, doc: str, **rest: Any) -> Text:
    return _declare(Type.STRING, default, doc, **rest)


def password(default: Text, doc: str, **rest: Any) -> Text:
    """A secret: never shown, and `${env:…}` or `${file:…}` says where it is (`config/secrets.py`)."""
    return _declare(Type.PASSWORD, default, doc, **rest)


def class_name(default: Text, doc: str, **rest: Any) -> Text:
    return _declare(Type.CLASS, default, doc, **rest)


def listing(default: Items, doc: str, **rest: Any) -> Items:
    return _declare(Type.LIST, default, doc, **rest)


def keys_of(table: type[Any]) -> dict[str, Key]:
    """The settings that a dataclass declares, by name, in alphabetical order."""
    declared = [f for f in fields(table) if "key" in f.metadata]
    keys = [replace(f.metadata["key"], name=f.name.replace("_", ".")) for f in declared]
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}
