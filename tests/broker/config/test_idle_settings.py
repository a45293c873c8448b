"""A setting that does nothing says so: the `idle` marks are compared with what the code reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tidemark.broker.config import GROUP_KEYS, KEYS, TOPIC_KEYS, Key

BROKER = Path(__file__).parents[3] / "broker"
# Of the tables' own package only this gives settings a meaning; the rest declares, parses, checks and describes them.
READERS_IN_CONFIG = ("broker.py", "exposure.py", "group.py", "load.py", "sasl.py")
READ_BY_NAME = {  # only where a program cannot see it: read as a text, by its Kafka name
    "broker.id": "load.py turns it into node.id",
    "log.dir": "load.py turns it into log.dirs",
    "connections.max.reauth.ms": "sasl.py, where a mechanism may have its own",
    "sasl.enabled.mechanisms": "sasl.py",
    "sasl.jaas.config": "sasl.py",
    "sasl.plain.users": "sasl.py",
    "sasl.server.callback.handler.class": "sasl.py",
}


def _sources() -> Iterator[Path]:
    for path in BROKER.rglob("*.py"):
        if path.parent.name != "config" or path.name in READERS_IN_CONFIG:
            yield path


@cache
def _names_read() -> frozenset[str]:
    """Attributes that are read anywhere, and the names that `setting(...)` or `getattr` may be given."""
    names = set()
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                names.add(node.value)
    return frozenset(names)


def _lies(has_effect: dict[Key, bool]) -> list[str]:
    return [
        f"{key.name} is {'read' if effect else 'never read'}: {key.idle}"
        for key, effect in has_effect.items()
        if effect != (key.idle is None)
    ]


def test_a_topic_or_group_setting_is_read_unless_it_says_that_it_has_no_effect() -> None:
    keys = (*TOPIC_KEYS.values(), *GROUP_KEYS.values())
    rules = _names_of_rules()
    assert _lies({key: key.attribute in _names_read() or key.name in rules for key in keys}) == []


def test_a_broker_setting_is_read_unless_it_says_that_it_has_no_effect() -> None:
    assert _lies({key: _has_effect(key) for key in KEYS.values()}) == []


def _has_effect(key: Key) -> bool:
    """That of a setting which topics or groups inherit is theirs."""
    heirs = [
        each
        for each in (*TOPIC_KEYS.values(), *GROUP_KEYS.values())
        if key.name in {synonym.name for synonym in each.synonyms}
    ]
    if heirs:
        return any(each.idle is None for each in heirs)
    return key.attribute in _names_read() or key.name in READ_BY_NAME


def _names_of_rules() -> frozenset[str]:
    from tidemark.broker.metadata.brokers import UNCLEAN_LEADER_ELECTION
    from tidemark.broker.metadata.min_isr import MIN_INSYNC_REPLICAS

    return frozenset((MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION))


def _stands_alone(text: str) -> bool:
    words = text.split()
    leans_on = ("And", "But", "It", "They", "That", "Such", "As", "Likewise")
    return words[0] not in leans_on and len(words) >= 6 and text.endswith(".")


def test_a_description_stands_alone() -> None:
    keys = (*KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values())
    assert [(key.name, key.doc) for key in keys if not _stands_alone(key.doc)] == []
