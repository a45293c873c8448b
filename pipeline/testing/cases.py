"""Cases beside a pipeline: `shop.yaml` has them in `shop.cases.yaml` (or .json), each with records in and rows out.

cases:
  - name: an order gets its customer's country
    given:                       # by source, or by topic where a source reads several
      customers: [{key: c1, value: {name: Ann, country: DE}}]
      orders: [{order_id: 1, customer_id: c1}]       # a mapping without 'key' or 'value' is the value itself
    expect:                      # by sink; those that are not named do not run
      enriched: [{key: "1", value: {order_id: 1, country: DE}}]
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidemark.failure import CommandFailed, ExitCode

SUFFIXES = (".cases.yaml", ".cases.yml", ".cases.json")
RECORD = ("key", "value", "base64", "headers", "timestamp", "partition")
CASE = ("name", "given", "expect", "ignore", "ordered", "fails", "then")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A record that goes in."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    given: Mapping[str, tuple[Given, ...]] = field(default_factory=dict)
    expect: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # rows as they stand in the file
    ignore: tuple[str, ...] = ()  # columns, or fields of values, that are not compared
    ordered: bool = False
    fails: str | None = None  # a regular expression that the pipeline's failure must match
    then: Case | None = None  # more records for the same pipeline, after it was stopped and started again

    @property
    def sinks(self) -> set[str]:
        later = set() if self.then is None else self.then.sinks
        return set(self.expect) | later


def cases_beside(pipeline: Path) -> Path:
    """The file with a pipeline's cases."""
    stem = pipeline.name.removesuffix(".yaml").removesuffix(".yml")
    found = [pipeline.with_name(stem + suffix) for suffix in SUFFIXES]
    for each in found:
        if each.exists():
            return each
    raise CommandFailed(f"There are no cases beside {pipeline}: write {found[0].name}.", code=ExitCode.NOT_FOUND)


def pipeline_beside(cases: Path) -> Path | None:
    for suffix in SUFFIXES:
        if cases.name.endswith(suffix):
            stem = cases.name.removesuffix(suffix)
            beside = [cases.with_name(stem + ending) for ending in (".yaml", ".yml")]
            return next((each for each in beside if each.exists()), None)
    return None


def read_cases(path: Path) -> list[Case]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Plain)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}.", code=ExitCode.USAGE) from None
    listed = content.get("cases") if isinstance(content, dict) else content
    if not isinstance(listed, list) or not listed:
        raise _mistake(path, "it must have a list of 'cases'")
    cases = [_case(each, path) for each in listed]
    names = [each.name for each in cases]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _mistake(path, f"two cases are named {twice!r}")
    return cases


def _case(content: Any, path: Path, name: str | None = None) -> Case:
    if not isinstance(content, dict) or (name is None and not isinstance(content.get("name"), str)):
        raise _mistake(path, "every case is a mapping with a 'name'")
    name = name or content["name"]
    if unknown := next((key for key in content if key not in CASE), None):
        raise _mistake(path, f"{name}: unknown key {unknown!r}; there are {', '.join(CASE)}")
    if "expect" not in content and "fails" not in content:
        raise _mistake(path, f"{name}: a case needs 'expect' or 'fails'")
    given = _lists(content.get("given") or {}, f"{name}: given", path)
    return Case(
        name=name,
        given={source: tuple(given_record(each) for each in records) for source, records in given.items()},
        expect={k: tuple(v) for k, v in _lists(content.get("expect") or {}, f"{name}: expect", path).items()},
        ignore=tuple(content.get("ignore") or ()),
        ordered=bool(content.get("ordered", False)),
        fails=content.get("fails"),
        then=None if content.get("then") is None else _case(content["then"], path, f"{name}, then"),
    )


def _lists(content: Any, what: str, path: Path) -> dict[str, list[Any]]:
    if not isinstance(content, dict) or not all(isinstance(each, list) for each in content.values()):
        raise _mistake(path, f"{what} must map names to lists")
    return content


def is_record(content: Any) -> bool:
    return isinstance(content, dict) and bool(content) and set(content) <= set(RECORD)


def given_record(content: Any) -> Given:
    if not is_record(content):
        return Given(value=as_bytes(content))
    value = as_bytes(content.get("value"))
    if "base64" in content:
        value = base64.b64decode(content["base64"])
    return Given(
        key=as_bytes(content.get("key")),
        value=value,
        headers=tuple((str(name), as_bytes(each) or b"") for name, each in (content.get("headers") or {}).items()),
        timestamp_ms=content.get("timestamp"),
        partition=content.get("partition"),
    )


def as_bytes(content: Any) -> bytes | None:
    """Text as it stands; everything else as JSON."""
    if content is None or isinstance(content, bytes):
        return content
    return (content if isinstance(content, str) else json.dumps(content)).encode()


class _Plain(yaml.SafeLoader):
    """Without YAML's times: 2030-01-31 is a text, as it is in JSON."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mistake(path: Path, why: str) -> CommandFailed:
    return CommandFailed(f"{path}: {why}.", code=ExitCode.USAGE)
