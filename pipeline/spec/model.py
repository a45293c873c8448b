"""A pipeline as a value: sources become views, steps become views over views, sinks take a view away."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.pipeline.registry.client import RegistrySettings

_WORD = re.compile(r"\w+")
_NOW = re.compile(r"\bunix_timestamp\s*\(\s*\)", re.IGNORECASE)  # of nothing: the present; else it only converts
FRAMED_FORMATS = ("avro-confluent", "json-confluent", "protobuf-confluent")  # by a schema registry
FORMATS = ("json", "avro", "csv", "debezium", "string", "binary", *FRAMED_FORMATS)
MALFORMED = ("dead_letter", "count", "fail")
FILE_SINKS = ("parquet", "delta", "iceberg", "console", "python")


def words_in(*texts: str | None) -> set[str]:
    """All words of SQL, in small letters."""
    return {word.lower() for text in texts if text for word in _WORD.findall(_NOW.sub("now()", text))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Where a source's older records are: a table that keeps them as they came, or the topic's own segment files."""

    kind: str  # parquet, delta, iceberg, segments
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics as a stream of rows, or (`table`) the newest value of each key as a table."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"  # earliest, latest, or JSON of offsets by topic and partition
    start_time_ms: int | None = None
    end_time_ms: int | None = None  # only of a replay: what is later is not read
    format: str = "binary"
    schema: str | None = None  # DDL, or Avro's JSON; None with json and csv: inferred from a sample
    table: bool = False
    on_malformed: str = "count"
    dead_letter_topic: str | None = None
    on_unknown_fields: str = "count"
    on_data_loss: str = "fail"
    on_schema_change: str = "refuse"
    batch_records_max: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    subject: str | None = None  # of the registry; None: TOPIC-value
    key_format: str | None = None
    key_subject: str | None = None
    backfill: Backfill | None = None

    @property
    def is_framed(self) -> bool:
        return self.format in FRAMED_FORMATS

    @property
    def has_dead_letters(self) -> bool:
        return self.on_malformed == "dead_letter"

    @property
    def key_schema_name(self) -> str:
        """Under which the key's schema is kept beside the value's."""
        return f"{self.name}:key"

    @property
    def inferred(self) -> bool:
        return self.schema is None and self.format in ("json", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSource:
    """Files of a table as a stream of rows: what is there now, and what comes."""

    name: str
    kind: str  # parquet, delta or iceberg
    path: str
    files_per_batch: int = 1
    options: Mapping[str, str] = field(default_factory=dict)


Source = TopicSource | LakeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """One row per key within a time, by the watermark's column."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Which share of a batch's rows may break rules before it is told of, and before the pipeline stops."""

    warn: float | None = None
    stop: float | None = None

    def sentence(self, *, rows: int, rejected: int) -> tuple[str, bool] | None:
        """What to say of a batch, and whether to stop; None if it is within the limits."""
        share = rejected / rows if rows else 0.0
        for limit, stops in ((self.stop, True), (self.warn, False)):
            if limit is not None and share > limit:
                return f"{rejected:,} of {rows:,} rows ({share:.1%}) break rules; the limit is {limit:.1%}", stops
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    sql: str
    watermark: Watermark | None = None
    dedupe: Dedupe | None = None
    python: str | None = None  # module:function beside the pipeline: a DataFrame in, a DataFrame out
    rules: Mapping[str, str] = field(default_factory=dict)  # what must hold -> SQL condition; the rest is NAME_rejected
    thresholds: Thresholds = field(default_factory=Thresholds)

    @property
    def rejected(self) -> str:
        return f"{self.name}_rejected"

    @property
    def words(self) -> set[str]:
        """Of its SQL and its rules, in small letters: SQL does not tell NAMES from names."""
        return words_in(self.sql, *self.rules.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    name: str
    view: str
    topic: str  # a name, or (`topic_column`) the column that holds it
    topic_column: str | None = None
    key: str | None = None  # SQL expressions over the view's columns
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    mode: str = "append"
    writers: int = 1
    rate: int | None = None  # records per second
    trigger_s: float = 1.0
    transaction_timeout_s: float = 60.0
    partitions: int | None = None  # of the topic, if it has to be created
    format: str | None = None  # of a schema registry; None: as SQL makes it
    subject: str | None = None
    schema: str | None = None
    key_format: str | None = None
    key_subject: str | None = None
    auto_register: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSink:
    name: str
    view: str
    kind: str
    path: str = ""  # a directory, or an Iceberg table's name
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    trigger_s: float = 10.0
    files: int = 1
    target_file_bytes: int = 128 << 20
    commit_every_s: float | None = None
    keys: tuple[str, ...] = ()  # with mode upsert: what a row is known by
    order_by: str | None = None  # SQL: of two changes to a key the greater one stays
    delete_when: str | None = None  # SQL: the change deletes its key
    deletes: str = "hard"
    options: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None  # module:function beside the pipeline, which is given every batch and its number

    @property
    def is_table(self) -> bool:
        return self.kind not in ("console", "python")

    @property
    def is_upsert(self) -> bool:
        return self.mode == "upsert"


Sink = TopicSink | FileSink


def one_topic(each: TopicSource | TopicSink) -> str | None:
    """The one topic of a source or sink; None if there are several, or columns and patterns decide."""
    if isinstance(each, TopicSink):
        return None if each.topic_column else each.topic
    return each.topics[0] if len(each.topics) == 1 else None


def value_subject(each: TopicSource | TopicSink) -> str:
    return each.subject or f"{one_topic(each)}-value"


def key_subject(each: TopicSource | TopicSink) -> str:
    return each.key_subject or f"{one_topic(each)}-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """How often the tables of a pipeline are seen to, and what of them is kept."""

    every_s: float
    keep_s: float = 7 * 86400.0
    orphans_s: float = 3 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Where OpenLineage's events go."""

    namespace: str = "tidemark"
    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    file: Path
    directory: str  # what the paths below were relative to
    bootstrap: str
    kafka: Mapping[str, str]  # settings of every client, by librdkafka's and Java's common names
    checkpoint: str
    warehouse: str
    group: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    spark: Mapping[str, str]
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    drain_s: float = 60.0  # how long batches at work may take to end, once a signal has come
    restarts_max: int = 5
    registry: RegistrySettings | None = None
    registers_schemas: bool = True  # False in tests and dry runs: the registry is the real one
    maintenance: Maintenance | None = None
    lineage: Lineage | None = None
    share_reads: bool = True  # one read of a source for all sinks that can be fed by it
    tables_change: bool = True  # those that the SQL names itself, while the pipeline runs

    @property
    def views(self) -> list[str]:
        rejected = [step.rejected for step in self.steps if step.rules]
        return [each.name for each in (*self.sources, *self.steps)] + rejected

    def is_behind_table(self, view: str) -> bool:
        """Does the view's SQL, or that of views before it, name a `type: table` source? Told by words, so perhaps once
        too often."""
        return any(each.table and each.name in self.views_behind([view]) for each in self.topic_sources)

    def views_behind(self, names: Collection[str]) -> set[str]:
        """These views, and all that they are made of. Told by words, so perhaps more."""
        words = self.words_behind(names)
        return {*names, *(each for each in self.views if each.lower() in words)}

    def words_behind(self, names: Collection[str]) -> set[str]:
        """All words, in small letters, of the SQL that makes these views."""
        found = {name.lower() for name in names}
        for step in reversed(self.steps):
            if found & {step.name.lower(), step.rejected.lower()}:
                found |= step.words
        return found

    @property
    def topic_sources(self) -> tuple[TopicSource, ...]:
        return tuple(each for each in self.sources if isinstance(each, TopicSource))

    @property
    def topic_sinks(self) -> tuple[TopicSink, ...]:
        return tuple(each for each in self.sinks if isinstance(each, TopicSink))
