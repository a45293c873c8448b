"""Print docs/config.md, made from the tables: `python -m tidemark.broker.config.docs > docs/config.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.broker.config.broker import KEYS
from tidemark.broker.config.group import GROUP_KEYS
from tidemark.broker.config.key import Key
from tidemark.broker.config.topic import TOPIC_KEYS

INTRO = """\
# Settings

This page is made from the tables in `broker/config/` by `make docs`; change those, not this.

Settings carry Kafka's names and meanings. They come from a YAML file or from a Kafka `server.properties` file
(`--config FILE`), and from `--set key=value`, which wins. With neither, the defaults below apply;
`config/single.yaml` shows the common ones with comments. A name that does not exist or a value that is not allowed is
an error that says what is. In a `server.properties` file, a setting that Kafka has and Tidemark does not is ignored
with a warning, so that existing files work.

Where a default is not Kafka's, the table says what Kafka's is. *No effect yet* marks what is accepted so that
programs and files written for Kafka work, and says why it changes nothing.

## Broker settings

*Changed by* says how a setting can be changed: `restart`, or while the broker runs for one broker (`per-broker`) or
also for all at once (`cluster-wide`).
"""

TOPICS = """\

## Topic settings

A topic can set these when it is created or later (`tidemark topics create|alter --config key=value`, or any Kafka
tool). What a topic does not set comes from the broker setting in the last column; of several, the first that is set.
"""

GROUPS = """\

## Group settings

A consumer group can set these for itself (`kafka-configs --entity-type groups`). What it does not set comes from the
broker setting in the last column.
"""


def page() -> str:
    tables = [*_broker_table(KEYS), TOPICS, *_topic_table(TOPIC_KEYS), GROUPS, *_topic_table(GROUP_KEYS)]
    return "\n".join([INTRO, *tables, ""])


def _broker_table(keys: Mapping[str, Key]) -> Iterator[str]:
    yield "| setting | type | default | allowed | changed by | meaning |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for key in keys.values():
        changed = "restart" if key.read_only else key.scope.value
        yield _row(f"`{key.name}`", key.type.name.lower(), _default(key), key.allowed, changed, _meaning(key))


def _topic_table(keys: Mapping[str, Key]) -> Iterator[str]:
    yield "| setting | type | default | allowed | meaning | broker setting |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for key in keys.values():
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in key.synonyms) or "–"
        yield _row(f"`{key.name}`", key.type.name.lower(), _default(key), key.allowed, _meaning(key), synonyms)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(key: Key) -> str:
    text = key.format(key.default)
    shown = "none" if text is None else f"`{text}`" if text else "empty"
    return f"{shown} (Kafka: {key.kafka_default})" if key.kafka_default else shown


def _meaning(key: Key) -> str:
    doc = f"{key.doc} Also `listener.name.NAME.{key.name}`." if key.per_listener else key.doc
    return f"{doc} *No effect yet: {key.idle}.*" if key.idle else doc


if __name__ == "__main__":
    print(page(), end="")
