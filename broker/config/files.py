"""Configuration files: YAML with Kafka's names as keys, or Kafka's own server.properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.broker.config.errors import ConfigError

YAML_SUFFIXES = (".yaml", ".yml")
PROPERTIES_SUFFIXES = (".properties", ".conf", ".cfg")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """What a file says, by Kafka name."""

    values: Mapping[str, str]
    is_properties: bool


def read_config_file(path: Path) -> ConfigFile:
    """Read a file of either kind; the name's ending tells which, or else the contents."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the configuration file cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the configuration file is not UTF-8 text.") from None
    if _is_properties(path, text):
        return ConfigFile(values=parse_properties(text), is_properties=True)
    return ConfigFile(values=_parse_yaml(path, text), is_properties=False)


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format; of a key that comes twice, the last counts, as in Java."""
    return dict(_pair(line) for line in _logical_lines(text))


def _is_properties(path: Path, text: str) -> bool:
    if path.suffix in YAML_SUFFIXES or path.suffix in PROPERTIES_SUFFIXES:
        return path.suffix in PROPERTIES_SUFFIXES
    first = next(_logical_lines(text), "")
    return re.match(r"[^\s=:]+\s*=", first) is not None


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        backslashes = len(pending) - len(pending.rstrip("\\"))
        if backslashes % 2:  # an odd one out continues the line
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _pair(line: str) -> tuple[str, str]:
    # A key ends at the first =, : or blank that no backslash escapes.
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None  # every part may be empty
    return _unescape(match[1]), _unescape(match[2]).rstrip()


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", plain, text)


def _parse_yaml(path: Path, text: str) -> dict[str, str]:
    import yaml  # 20 ms that a start without a YAML file need not wait for

    from tidemark.broker.config.load import as_text

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise ConfigError(f"{path}: this is not YAML{line}: {getattr(error, 'problem', error)}.") from None
    if document is None:
        return {}
    if not isinstance(document, dict) or not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: it must hold key: value lines.")
    _refuse_repeats(path, [key.value for key, _ in node.value])
    return {str(name): as_text(str(name), value) for name, value in document.items() if value is not None}


def _refuse_repeats(path: Path, names: list[Any]) -> None:
    for name in names:
        if names.count(name) > 1:  # YAML would silently take the last
            raise ConfigError(f"{path}: {name} comes more than once.", key=str(name))
