"""A setting that does nothing says so: the `idle` marks are compared with what the code reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("key", [*TOPIC_KEYS.values(), *GROUP_KEYS.values()], ids=lambda key: key.name)
def test_a_topic_or_group_setting_is_read_unless_it_says_that_it_has_no_effect(key: Key) -> None:
    has_effect = key.attribute in _names_read() or key.name in _names_of_rules()
    assert has_effect == (key.idle is None), f"{key.name} is {'read' if has_effect else 'never read'}: {key.idle}"


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_a_broker_setting_is_read_unless_it_says_that_it_has_no_effect(key: Key) -> None:
    heirs = [
        each
        for each in (*TOPIC_KEYS.values(), *GROUP_KEYS.values())
        if key.name in {synonym.name for synonym in each.synonyms}
    ]
    if heirs:  # its effect is that of the topic setting that inherits it
        assert (key.idle is None) == any(each.idle is None for each in heirs)
        return
    has_effect = key.attribute in _names_read() or key.name in READ_BY_NAME
    assert has_effect == (key.idle is None), f"{key.name} is {'read' if has_effect else 'never read'}: {key.idle}"


def _names_of_rules() -> frozenset[str]:
    from tidemark.broker.metadata.brokers import UNCLEAN_LEADER_ELECTION
    from tidemark.broker.metadata.min_isr import MIN_INSYNC_REPLICAS

    return frozenset((MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION))


@pytest.mark.parametrize("key", [*KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values()], ids=lambda key: key.name)
def test_a_description_stands_alone(key: Key) -> None:
    first = key.doc.split()[0]
    assert first not in ("And", "But", "It", "They", "That", "Such", "As", "Likewise"), key.doc
    assert len(key.doc.split()) >= 6, key.doc
    assert key.doc.endswith("."), key.doc
