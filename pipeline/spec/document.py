"""A YAML document that remembers where everything stands, so that a mistake can be shown by file, line and key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, overload

import yaml

from tidemark.failure import CommandFailed, ExitCode

T = TypeVar("T")
D = TypeVar("D")
REQUIRED: Any = object()
_STEP = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]")


class Section:
    """One mapping of the document, asked key by key."""

    def __init__(self, node: yaml.Node, *, file: str, path: str = "") -> None:
        self._file = file
        self._path = path
        self._node = node
        if not isinstance(node, yaml.MappingNode):
            self.refuse(f"{path or 'the file'} must be a mapping of keys to values")
        self._entries = {key.value: (key, value) for key, value in node.value}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def keys(self) -> list[str]:
        return list(self._entries)

    def refuse(self, message: str, *, key: str | None = None) -> NoReturn:
        node = self._entries[key][0] if key is not None and key in self._entries else self._node
        raise CommandFailed(f"{self._file}:{node.start_mark.line + 1}: {message}.", code=ExitCode.USAGE)

    @overload
    def text(self, key: str, *, among: Sequence[str] | None = None) -> str: ...
    @overload
    def text(self, key: str, default: T, *, among: Sequence[str] | None = None) -> str | T: ...
    def text(self, key: str, default: object = REQUIRED, *, among: Sequence[str] | None = None) -> object:
        value = self._scalar(key, default, str, "a text")
        if among is not None and isinstance(value, str) and value not in among:
            self.refuse(
                f"{self._name(key)} must be one of {', '.join(among)}, not {value!r}{_near(value, among)}", key=key
            )
        return value

    @overload
    def number(self, key: str, *, at_least: int = 0) -> int: ...
    @overload
    def number(self, key: str, default: T, *, at_least: int = 0) -> int | T: ...
    def number(self, key: str, default: object = REQUIRED, *, at_least: int = 0) -> object:
        value = self._scalar(key, default, int, "a whole number")
        if isinstance(value, int) and value < at_least:
            self.refuse(f"{self._name(key)} must be at least {at_least}, not {value}", key=key)
        return value

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._scalar(key, default, bool, "true or false"))

    def amount(self, key: str, default: D, parse: Callable[[str], T]) -> T | D:
        """A value with a unit: `64MB`, `5 minutes`."""
        value = self._value(key, default)
        if not isinstance(value, yaml.Node):
            return value
        try:
            return parse(str(_plain(value)))
        except ValueError as error:
            self.refuse(f"{self._name(key)}: {error}", key=key)

    @overload
    def texts(self, key: str) -> tuple[str, ...]: ...
    @overload
    def texts(self, key: str, default: T) -> tuple[str, ...] | T: ...
    def texts(self, key: str, default: object = REQUIRED) -> object:
        """A list of texts, or one alone."""
        value = self._value(key, default)
        if not isinstance(value, yaml.Node):
            return value
        plain = _plain(value)
        listed = plain if isinstance(plain, list) else [plain]
        if not listed or not all(isinstance(each, str) for each in listed):
            self.refuse(f"{self._name(key)} must be a text or a list of texts", key=key)
        return tuple(listed)

    def mapping(self, key: str) -> dict[str, str]:
        """Settings that are passed on as they are."""
        value = self._value(key, None)
        if value is None:
            return {}
        plain = _plain(value)
        if not isinstance(plain, dict) or any(isinstance(each, dict | list) for each in plain.values()):
            self.refuse(f"{self._name(key)} must map names to values", key=key)
        return {str(name): _setting(each) for name, each in plain.items()}

    def plain(self, key: str, default: object = None) -> object:
        value = self._value(key, default)
        return _plain(value) if isinstance(value, yaml.Node) else value

    def section(self, key: str, *, required: bool = False) -> Section | None:
        value = self._value(key, REQUIRED if required else None)
        return None if value is None else Section(value, file=self._file, path=self._name(key))

    def named(self, key: str) -> Iterator[tuple[str, Section]]:
        """The sections of a mapping, by name, in the order of the file."""
        outer = self.section(key)
        if outer is None:
            return
        for name in outer.keys:
            inner = outer.section(name, required=True)
            assert inner is not None
            yield name, inner

    def listed(self, key: str) -> Iterator[Section]:
        value = self._value(key, None)
        if value is None:
            return
        if not isinstance(value, yaml.SequenceNode):
            self.refuse(f"{self._name(key)} must be a list", key=key)
        for index, node in enumerate(value.value):
            yield Section(node, file=self._file, path=f"{self._name(key)}[{index}]")

    def allow(self, *keys: str) -> None:
        """Refuse every other key, before anything else: what a typing mistake leads to later would only confuse."""
        for key in self._entries:
            if key not in keys:
                where = f" in {self._path}" if self._path else ""
                self.refuse(f"unknown key {key!r}{where}{_near(key, keys)}", key=key)

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _value(self, key: str, default: T) -> yaml.Node | T:
        if key in self._entries:
            value: yaml.Node = self._entries[key][1]
            if _plain(value) is not None:
                return value
        if default is REQUIRED:
            self.refuse(f"{self._path or 'the file'} needs the key {key!r}")
        return default

    def _scalar(self, key: str, default: object, kind: type, wanted: str) -> object:
        value = self._value(key, default)
        if not isinstance(value, yaml.Node):
            return value
        plain = _plain(value)
        if kind is str and isinstance(plain, int | float) and not isinstance(plain, bool):
            plain = str(plain)
        if not isinstance(plain, kind) or (kind is int and isinstance(plain, bool)):
            self.refuse(f"{self._name(key)} must be {wanted}, not {plain!r}", key=key)
        return plain


def read_document(path: Path, *, overrides: Sequence[str] = ()) -> Section:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandFailed(f"There is no file {path}.", code=ExitCode.NOT_FOUND) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}.", code=ExitCode.USAGE) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise CommandFailed(f"{path}:{line}: this is not YAML: {error.problem}.", code=ExitCode.USAGE) from None
    if node is None:
        raise CommandFailed(f"{path}:1: the file is empty.", code=ExitCode.USAGE)
    _refuse_repeated_keys(node, file=str(path))
    for override in overrides:
        _override(node, override)
    return Section(node, file=str(path))


def _refuse_repeated_keys(node: yaml.Node, *, file: str) -> None:
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _refuse_repeated_keys(each, file=file)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            message = f"{file}:{key.start_mark.line + 1}: the key {key.value!r} is given twice."
            raise CommandFailed(message, code=ExitCode.USAGE)
        seen.add(key.value)
        _refuse_repeated_keys(value, file=file)


def _override(root: yaml.Node, override: str) -> None:
    """`--set sinks.counts.topic=other`: put a value where the path leads, as if it stood in the file."""
    path, equals, text = override.partition("=")
    steps: list[str | int] = [found["name"] or int(found["index"]) for found in _STEP.finditer(path)]
    if steps[:1] in (["spark"], ["kafka"]) and len(steps) > 2:
        steps = list(path.split(".", 1))  # names of settings have dots in them
    if not equals or not steps:
        raise CommandFailed(f"--set {override!r} is not KEY=VALUE.", code=ExitCode.USAGE)
    try:
        value = yaml.compose(text, Loader=yaml.SafeLoader) or yaml.ScalarNode("tag:yaml.org,2002:null", "null")
    except yaml.YAMLError:
        raise CommandFailed(f"--set {path}: {text!r} is not a YAML value.", code=ExitCode.USAGE) from None
    value.start_mark = root.start_mark
    node = root
    for step in steps[:-1]:
        node = _child(node, step, path)
    last = steps[-1]
    if isinstance(node, yaml.MappingNode) and isinstance(last, str):
        node.value = [(k, v) for k, v in node.value if k.value != last]
        key = yaml.ScalarNode("tag:yaml.org,2002:str", last, start_mark=root.start_mark, end_mark=root.end_mark)
        node.value.append((key, value))
    elif isinstance(node, yaml.SequenceNode) and isinstance(last, int) and last < len(node.value):
        node.value[last] = value
    else:
        raise CommandFailed(f"--set {path}: there is no such place in the file.", code=ExitCode.USAGE)


def _child(node: yaml.Node, step: str | int, path: str) -> yaml.Node:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        found: yaml.Node = node.value[step]
        return found
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return value  # type: ignore[no-any-return]
        if isinstance(step, str):
            made = yaml.MappingNode("tag:yaml.org,2002:map", [], start_mark=node.start_mark, end_mark=node.end_mark)
            name = yaml.ScalarNode("tag:yaml.org,2002:str", step, start_mark=node.start_mark, end_mark=node.end_mark)
            node.value.append((name, made))
            return made
    raise CommandFailed(f"--set {path}: there is no such place in the file.", code=ExitCode.USAGE)


def _plain(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
