"""From a YAML file to a Pipeline: every mistake that can be seen without Spark and without a broker is found here."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemark.pipeline.registry.client import RegistrySettings
from tidemark.pipeline.spec.document import Section, read_document
from tidemark.pipeline.spec.model import (
    FILE_SINKS,
    FORMATS,
    FRAMED_FORMATS,
    MALFORMED,
    Backfill,
    Dedupe,
    FileSink,
    LakeSource,
    Lineage,
    Maintenance,
    Pipeline,
    Sink,
    Source,
    Step,
    Thresholds,
    TopicSink,
    TopicSource,
    Watermark,
    one_topic,
)
from tidemark.pipeline.spec.secrets import refers, resolve
from tidemark.pipeline.spec.units import parse_bytes, parse_seconds, parse_share

_VIEW = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
TOP = (
    "name", "description", "bootstrap", "kafka", "directory", "checkpoint", "warehouse", "group", "sources", "steps",
    "sinks", "spark", "registry", "metrics_host", "metrics_port", "restarts_max", "drain",
    "share_reads", "tables_change", "maintenance", "lineage",
)  # fmt: skip
TOPIC_SOURCE = (
    "type", "topic", "topics", "pattern", "start", "end_time", "format", "schema", "on_malformed", "dead_letter_topic",
    "on_unknown_fields", "on_data_loss", "on_schema_change", "batch_records_max", "options", "subject", "key_format",
    "key_subject", "backfill",
)  # fmt: skip
BACKFILL = ("type", "path")
LAKE_SOURCE = ("type", "path", "files_per_batch", "options")
STEP = ("name", "from", "sql", "python", "watermark", "dedupe", "rules", "thresholds")
TOPIC_SINK = (
    "type", "from", "topic", "topic_column", "key", "value", "headers", "timestamp", "mode", "writers", "rate",
    "trigger", "transaction_timeout", "partitions", "format", "subject", "schema", "key_format", "key_subject",
    "auto_register",
)  # fmt: skip
LINEAGE = ("namespace", "url", "api_key", "file")
MAINTENANCE = ("every", "keep", "orphans")
REGISTRY = ("url", "username", "password", "bearer_token", "ca")
FILE_SINK = (
    "type", "from", "path", "partition_by", "mode", "keys", "order_by", "delete_when", "deletes", "trigger", "files",
    "target_file_size", "commit_every", "options", "python",
)  # fmt: skip
WITH_SECRETS = ("kafka", "registry", "lineage")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
HOME_VARIABLE = "TIDEMARK_PIPELINE_HOME"


def load(path: Path, *, overrides: Sequence[str] = (), secrets: Collection[str] = WITH_SECRETS) -> Pipeline:
    """`secrets`: of which sections they are wanted; in the others, what refers to them stays as it is written."""
    top = read_document(path, overrides=overrides)
    top.allow(*TOP)
    name = top.text("name", path.stem)
    if not _NAME.fullmatch(name):
        top.refuse(f"name: {name!r} must be letters, digits, '-' and '_'", key="name")
    home = _home(path, top)
    pipeline = Pipeline(
        name=name,
        file=path,
        directory=str(home),
        bootstrap=top.text("bootstrap", os.environ.get("TIDEMARK_BOOTSTRAP") or DEFAULT_BOOTSTRAP),
        kafka=_resolved("kafka", top.mapping("kafka"), secrets),
        checkpoint=anchored(top.text("checkpoint", f"checkpoints/{name}"), home),
        warehouse=anchored(top.text("warehouse", "lake"), home),
        group=top.text("group", f"pipeline-{name}"),
        sources=tuple(_source(name, section, home) for name, section in top.named("sources")),
        steps=tuple(_step(section) for section in top.listed("steps")),
        sinks=tuple(_sink(name, section, home) for name, section in top.named("sinks")),
        spark=top.mapping("spark"),
        metrics_host=top.text("metrics_host", "127.0.0.1"),
        metrics_port=top.number("metrics_port", None),
        drain_s=top.amount("drain", 60.0, parse_seconds),
        restarts_max=top.number("restarts_max", 5),
        registry=_registry(top, secrets),
        share_reads=top.flag("share_reads", True),
        tables_change=top.flag("tables_change", True),
        maintenance=_maintenance(top),
        lineage=_lineage(top, home, secrets),
    )
    _check(pipeline, top)
    return pipeline


def _resolved(section: str, said: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    return {key: resolve(value, key=f"{section}.{key}") if section in secrets else value for key, value in said.items()}


def _is_address(url: str) -> bool:
    return refers(url) or url.strip().startswith(("http://", "https://"))


def _registry(top: Section, secrets: Collection[str]) -> RegistrySettings | None:
    section = top.section("registry")
    if section is None:
        return None
    section.allow(*REGISTRY)
    said = {key: value for key in REGISTRY if (value := section.text(key, None)) is not None}
    found = _resolved("registry", said, secrets)
    if not all(_is_address(each) for each in found.get("url", "").split(",")):
        section.refuse("registry.url must begin with http:// or https://", key="url")
    return RegistrySettings(**found)


def _maintenance(top: Section) -> Maintenance | None:
    section = top.section("maintenance")
    if section is None:
        return None
    section.allow(*MAINTENANCE)
    found = Maintenance(
        every_s=section.amount("every", 86400.0, parse_seconds),
        keep_s=section.amount("keep", 7 * 86400.0, parse_seconds),
        orphans_s=section.amount("orphans", 3 * 86400.0, parse_seconds),
    )
    if found.orphans_s < 86400:
        section.refuse("maintenance.orphans must be a day at least: younger files may be of a commit under way",
                       key="orphans")  # fmt: skip
    return found


def _lineage(top: Section, home: Path, secrets: Collection[str]) -> Lineage | None:
    section = top.section("lineage")
    if section is None:
        return None
    section.allow(*LINEAGE)
    said = {key: value for key in LINEAGE if (value := section.text(key, None)) is not None}
    found = _resolved("lineage", said, secrets)
    if "url" not in found and "file" not in found:
        section.refuse("lineage needs a 'url' or a 'file'")
    if not _is_address(found.get("url", "http://")):
        section.refuse("lineage.url must begin with http:// or https://", key="url")
    if "file" in found:
        found["file"] = anchored(found["file"], home)
    return Lineage(**found)


def _home(path: Path, top: Section) -> Path:
    """What paths in the file are relative to. Not the directory that somebody happens to stand in."""
    beside = path.absolute().parent
    said = top.text("directory", None)
    if said is not None:
        return beside / said
    return Path(os.environ.get(HOME_VARIABLE) or beside).absolute()


def anchored(path: str, home: Path) -> str:
    """`://` marks what is no path of this machine, but for file:."""
    if path.startswith("file:/"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else os.path.normpath(home / Path(path).expanduser())


def _source(name: str, section: Section, home: Path) -> Source:
    _require_view_name(name, section)
    kind = section.text("type", "topic", among=("topic", "table", "parquet", "delta", "iceberg"))
    section.allow(*(TOPIC_SOURCE if kind in ("topic", "table") else LAKE_SOURCE))
    if kind in ("topic", "table"):
        return _topic_source(name, section, home, table=kind == "table")
    return LakeSource(
        name=name,
        kind=kind,
        path=section.text("path") if kind == "iceberg" else anchored(section.text("path"), home),
        files_per_batch=section.number("files_per_batch", 1, at_least=1),
        options=section.mapping("options"),
    )


def _backfill(name: str, section: Section, home: Path, *, table: bool) -> Backfill | None:
    inner = section.section("backfill")
    if inner is None:
        return None
    if table:
        section.refuse(
            f"sources.{name}: a 'type: table' source is read as a whole, and has no 'backfill'", key="backfill"
        )
    inner.allow(*BACKFILL)
    kind = inner.text("type", "parquet", among=("parquet", "delta", "iceberg", "segments"))
    if kind == "segments":
        return Backfill(kind=kind)
    path = inner.text("path")
    return Backfill(kind=kind, path=path if kind == "iceberg" else anchored(path, home))


def _topic_source(name: str, section: Section, home: Path, *, table: bool) -> TopicSource:
    topics = section.texts("topics", ()) or section.texts("topic", ())
    pattern = section.text("pattern", None)
    if bool(topics) == (pattern is not None):
        section.refuse(f"sources.{name} needs either 'topic', 'topics' or 'pattern'")
    wanted = section.text("format", "binary", among=FORMATS)
    schema = _schema(section, wanted)
    dead_letter_topic = section.text("dead_letter_topic", None)
    on_malformed = section.text("on_malformed", "dead_letter" if dead_letter_topic else "count", among=MALFORMED)
    if on_malformed == "dead_letter" and dead_letter_topic is None:
        section.refuse(f"sources.{name}: 'on_malformed: dead_letter' needs 'dead_letter_topic'", key="on_malformed")
    start, start_time_ms = _start(section)
    return TopicSource(
        name=name,
        topics=topics,
        pattern=pattern,
        start=start,
        start_time_ms=start_time_ms,
        end_time_ms=section.amount("end_time", None, _time_ms),
        format=wanted,
        schema=schema,
        table=table,
        on_malformed=on_malformed,
        dead_letter_topic=dead_letter_topic,
        on_unknown_fields=section.text("on_unknown_fields", "count", among=("count", "ignore")),
        on_data_loss=section.text("on_data_loss", "fail", among=("fail", "continue")),
        on_schema_change=section.text("on_schema_change", "refuse", among=("refuse", "accept")),
        batch_records_max=section.number("batch_records_max", None, at_least=1),
        options=section.mapping("options"),
        subject=section.text("subject", None),
        key_format=section.text("key_format", None, among=FRAMED_FORMATS),
        key_subject=section.text("key_subject", None),
        backfill=_backfill(name, section, home, table=table),
    )


def _schema(section: Section, wanted: str) -> str | None:
    schema: Any = section.plain("schema")
    if schema is None or schema == "infer":
        if wanted == "avro":
            section.refuse("Avro needs a 'schema': Avro's own, as JSON or YAML", key="format")
        if wanted == "debezium":
            section.refuse("Debezium needs a 'schema': the columns of the rows in its envelopes", key="format")
        return None
    if wanted == "avro":
        return _avro_record(section, schema)
    if wanted in FRAMED_FORMATS:
        return schema if isinstance(schema, str) else json.dumps(schema)
    if wanted in ("string", "binary"):
        section.refuse(f"a schema says nothing about the format {wanted!r}", key="schema")
    if isinstance(schema, dict):
        return ", ".join(f"`{column}` {kind}" for column, kind in schema.items())
    if not isinstance(schema, str):
        section.refuse("schema must map columns to types", key="schema")
    return schema


def _avro_record(section: Section, schema: Any) -> str:
    try:
        found = json.loads(schema) if isinstance(schema, str) else schema
    except ValueError as error:
        section.refuse(f"schema: Avro's is JSON, and this is not: {error}", key="schema")
    if not isinstance(found, dict) or found.get("type") != "record" or not found.get("fields"):
        section.refuse("schema must be Avro's of a record, with fields", key="schema")
    return json.dumps(found)


def _start(section: Section) -> tuple[str, int | None]:
    start: Any = section.plain("start", "earliest")
    if start in ("earliest", "latest"):
        return start, None
    if isinstance(start, dict) and set(start) == {"offsets"}:
        return json.dumps({t: {str(p): o for p, o in by.items()} for t, by in start["offsets"].items()}), None
    if not isinstance(start, dict) or set(start) != {"time"}:
        wanted = "'earliest', 'latest', {time: T} or {offsets: {TOPIC: {PARTITION: OFFSET}}}"
        section.refuse(f"start must be {wanted}", key="start")
    try:
        return "earliest", _time_ms(str(start["time"]))
    except ValueError as error:
        section.refuse(f"start.time: {error}", key="start")


def _time_ms(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither milliseconds since 1970 nor a time like 2030-01-31T12:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def _step(section: Section) -> Step:
    section.allow(*STEP)
    name = section.text("name")
    _require_view_name(name, section)
    source, sql, python = (section.text(key, None) for key in ("from", "sql", "python"))
    if (source is None) == (sql is None):
        section.refuse(f"the step {name!r} needs either 'sql' or 'from'")
    if python is not None and not _FUNCTION.fullmatch(python):
        section.refuse(f"the step {name!r}: python must be MODULE:FUNCTION, not {python!r}", key="python")
    watermark, dedupe = section.section("watermark"), section.section("dedupe")
    step = Step(
        name=name,
        sql=sql if sql is not None else f"SELECT * FROM {source}",
        python=python,
        watermark=None if watermark is None else _watermark(watermark),
        dedupe=None if dedupe is None else _dedupe(dedupe),
        rules=section.mapping("rules"),
        thresholds=_thresholds(section),
    )
    if "thresholds" in section and not step.rules:
        section.refuse(f"the step {name!r} has thresholds, but no rules", key="thresholds")
    if step.dedupe is not None and step.watermark is None:
        section.refuse(f"the step {name!r} needs a 'watermark': its delay is how long duplicates are looked for")
    return step


def _thresholds(section: Section) -> Thresholds:
    inner = section.section("thresholds")
    if inner is None:
        return Thresholds()
    inner.allow("warn", "stop")
    return Thresholds(warn=inner.amount("warn", None, parse_share), stop=inner.amount("stop", None, parse_share))


def _watermark(section: Section) -> Watermark:
    section.allow("column", "delay")
    return Watermark(column=section.text("column"), delay=section.text("delay"))


def _dedupe(section: Section) -> Dedupe:
    section.allow("keys")
    return Dedupe(keys=section.texts("keys"))


def _sink(name: str, section: Section, home: Path) -> Sink:
    if not _NAME.fullmatch(name):
        section.refuse(f"sinks: {name!r} must be letters, digits, '-' and '_'")
    kind = section.text("type", "topic", among=("topic", *FILE_SINKS))
    section.allow(*(TOPIC_SINK if kind == "topic" else FILE_SINK))
    return _topic_sink(name, section) if kind == "topic" else _file_sink(name, section, kind, home)


def _topic_sink(name: str, section: Section) -> TopicSink:
    column = section.text("topic_column", None)
    return TopicSink(
        name=name,
        view=section.text("from"),
        topic=section.text("topic", "") if column else section.text("topic"),
        topic_column=column,
        key=section.text("key", None),
        value=section.text("value", None),
        headers=section.text("headers", None),
        timestamp=section.text("timestamp", None),
        mode=section.text("mode", "append", among=("append", "update", "complete")),
        writers=section.number("writers", 1, at_least=1),
        rate=section.number("rate", None, at_least=1),
        trigger_s=section.amount("trigger", 1.0, parse_seconds),
        transaction_timeout_s=section.amount("transaction_timeout", 60.0, parse_seconds),
        partitions=section.number("partitions", None, at_least=1),
        format=section.text("format", None, among=FRAMED_FORMATS),
        subject=section.text("subject", None),
        schema=_sink_schema(section),
        key_format=section.text("key_format", None, among=FRAMED_FORMATS),
        key_subject=section.text("key_subject", None),
        auto_register=section.flag("auto_register", True),
    )


def _sink_schema(section: Section) -> str | None:
    schema = section.plain("schema")
    if schema is not None and "format" not in section:
        section.refuse(f"a schema needs a 'format': {', '.join(FRAMED_FORMATS)}", key="schema")
    return schema if schema is None or isinstance(schema, str) else json.dumps(schema)


def _file_sink(name: str, section: Section, kind: str, home: Path) -> FileSink:
    path = "" if kind in ("console", "python") else section.text("path")
    function = section.text("python") if kind == "python" else None
    if function is not None and not _FUNCTION.fullmatch(function):
        section.refuse(f"sinks.{name}.python: {function!r} is not a function such as module:function", key="python")
    mode = section.text("mode", "append", among=("append", "update", "complete", "upsert"))
    _check_upsert(name, section, kind, mode)
    return FileSink(
        name=name,
        view=section.text("from"),
        kind=kind,
        path=anchored(path, home) if kind in ("parquet", "delta") else path,
        partition_by=section.texts("partition_by", ()),
        mode=mode,
        keys=section.texts("keys", ()),
        order_by=section.text("order_by", None),
        delete_when=section.text("delete_when", None),
        deletes=section.text("deletes", "hard", among=("hard", "soft")),
        trigger_s=section.amount("trigger", 10.0, parse_seconds),
        files=section.number("files", 1, at_least=1),
        target_file_bytes=section.amount("target_file_size", 128 << 20, parse_bytes),
        commit_every_s=section.amount("commit_every", None, parse_seconds),
        options=section.mapping("options"),
        python=function,
    )


def _check_upsert(name: str, section: Section, kind: str, mode: str) -> None:
    if mode != "upsert":
        for key in ("keys", "order_by", "delete_when", "deletes"):
            if key in section:
                section.refuse(f"sinks.{name}.{key} needs 'mode: upsert'", key=key)
        return
    if kind not in ("delta", "iceberg"):
        section.refuse(f"sinks.{name}: 'mode: upsert' needs a table of type delta or iceberg", key="mode")
    if "keys" not in section:
        section.refuse(f"sinks.{name}: 'mode: upsert' needs 'keys'", key="mode")


def _require_view_name(name: str, section: Section) -> None:
    if not _VIEW.fullmatch(name):
        section.refuse(f"{name!r} is not a name for a view: letters, digits and '_'")


def _check(pipeline: Pipeline, top: Section) -> None:
    if not pipeline.sources:
        top.refuse("a pipeline needs at least one source", key="sources")
    if not pipeline.sinks:
        top.refuse("a pipeline needs at least one sink", key="sinks")
    _check_registry(pipeline, top)
    views = pipeline.views
    for name in views:
        if views.count(name) > 1:
            top.refuse(f"two views are named {name!r}", key="steps")
    for sink in pipeline.sinks:
        if sink.view not in views:
            top.refuse(f"sinks.{sink.name}.from: there is no source or step {sink.view!r}", key="sinks")
    _check_places(pipeline, top)


def _check_places(pipeline: Pipeline, top: Section) -> None:
    """Parquet's list of files counts batches, not each query's: of two sinks, one's would be taken for written."""
    owners: dict[str, str] = {}
    for sink in pipeline.sinks:
        if not isinstance(sink, FileSink) or sink.kind != "parquet":
            continue
        other = owners.setdefault(sink.path, sink.name)
        if other != sink.name:
            top.refuse(
                f"sinks.{other} and sinks.{sink.name} have the same path, which Parquet cannot share: use delta or "
                "iceberg, or bring the rows together in a step",
                key="sinks",
            )


def _check_registry(pipeline: Pipeline, top: Section) -> None:
    """Formats of a registry need one, and a subject that can be told from the topic, or is said."""
    sources = [(f"sources.{each.name}", each) for each in pipeline.topic_sources]
    sinks = [(f"sinks.{each.name}", each) for each in pipeline.topic_sinks]
    every: list[tuple[str, TopicSource | TopicSink]] = [*sources, *sinks]
    for place, each in every:
        value, key = each.format in FRAMED_FORMATS, each.key_format is not None
        if (value or key) and pipeline.registry is None:
            name = each.format if value else each.key_format
            top.refuse(f"{place}: the format {name!r} needs a 'registry' with its url")
        if one_topic(each) is not None:
            continue
        for wanted, name, said in ((value, "subject", each.subject), (key, "key_subject", each.key_subject)):
            if wanted and said is None:
                top.refuse(f"{place} needs a '{name}': it has no one topic that would name it")
