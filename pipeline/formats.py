"""Bytes of records to columns: good rows have them, malformed ones a reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from tidemark.pipeline import debezium
from tidemark.pipeline.registry.client import RegistrySettings
from tidemark.pipeline.spec import TopicSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT = "_corrupt"
PARSED = "_parsed"
REASON = "_reason"
# Spark's names of what surrounds a value in a topic, under names that leave the plain ones to the user's columns.
METADATA = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_key",
    "value": "_value",
    "headers": "_headers",
}


# A record without a value deletes its key, in a stream as in a table: steps and sinks can tell it from a row of nulls.
TOMBSTONE = "_tombstone"


def with_metadata(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    named = (f.col(plain).alias(ours) for plain, ours in METADATA.items())
    return records.select(*named, f.col("value").isNull().alias(TOMBSTONE))


# A record's key, read by a registry's schema; _key is the bytes.
KEY_VALUE = "_key_value"
UNKNOWN = "_unknown"  # a field that the schema does not name, of formats that tell


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAs:
    """By which schemas a source's records are read."""

    schema: str | None = None
    key_schema: str | None = None
    registry: RegistrySettings | None = None


def decoded(records: DataFrame, source: TopicSource, read_as: ReadAs) -> DataFrame:
    """Adds _parsed (a struct) and _reason: null if the record could be read."""
    values = _framed(records, "_value", read_as.schema, read_as) if source.is_framed else None
    if values is None:
        values = _plain(records, source, schema=read_as.schema)
    if source.key_format is None:
        return values
    return _with_key(values, read_as)


def _framed(records: DataFrame, column: str, schema: str | None, read_as: ReadAs) -> DataFrame:
    from pyspark.sql import functions as f

    from tidemark.pipeline.registry.client import Schema
    from tidemark.pipeline.registry.decoding import columns, decoding

    assert schema is not None
    assert read_as.registry is not None
    reader = Schema.of_note(schema)
    decode = decoding(read_as.registry, reader, columns(reader))
    outcome = records.withColumn("_outcome", decode(f.col(column)))
    what = column.removeprefix("_")
    return outcome.select(
        *(f.col(f"`{name}`") for name in records.columns),
        f.col("_outcome.value").alias(PARSED),
        f.concat(f.lit(f"the {what}: "), f.col("_outcome.reason")).alias(REASON),
        f.col("_outcome.unknown").alias(UNKNOWN),
    )


def _with_key(values: DataFrame, read_as: ReadAs) -> DataFrame:
    from pyspark.sql import functions as f

    aside = values.withColumnsRenamed({PARSED: "_of_value", REASON: "_reason_of_value", UNKNOWN: "_unknown_of_value"})
    keys = _framed(aside, "_key", read_as.key_schema, read_as).drop(UNKNOWN)
    named = keys.withColumnsRenamed({PARSED: KEY_VALUE, "_of_value": PARSED, "_unknown_of_value": UNKNOWN})
    both = f.coalesce(f.col("_reason_of_value"), f.col(REASON))
    return named.withColumn(REASON, both).drop("_reason_of_value")


def _plain(records: DataFrame, source: TopicSource, *, schema: str | None) -> DataFrame:
    from pyspark.sql import functions as f

    parsed = _parse(source, schema)
    if parsed is None:
        return records.withColumn(REASON, f.lit(None).cast("string"))
    with_parsed = records.withColumn(PARSED, parsed)
    is_bad = f.col(PARSED).isNull()
    if source.format in ("json", "csv", "debezium"):
        is_bad = is_bad | f.col(f"{PARSED}.{CORRUPT}").isNotNull()
    if source.format == "debezium":
        is_bad = is_bad | debezium.operation(f.col(PARSED)).isNull()
    if source.format == "avro":
        is_bad = is_bad | _is_unreadable_avro(str(schema))
    reason = f.when(f.col("_value").isNotNull() & is_bad, f.lit(f"the value is not {source.format} of the schema"))
    if source.format == "debezium":
        reason = f.coalesce(reason, debezium.unusable(f.col(PARSED)))
    return with_parsed.withColumn(REASON, reason)


def _is_unreadable_avro(schema: str) -> Column:
    """Spark makes a row of nulls of what it cannot read. It is the record's own only if the bytes say just that."""
    from pyspark.sql import functions as f

    fields = json.loads(schema)["fields"]
    empty = reduce(and_, (f.col(f"{PARSED}.`{each['name']}`").isNull() for each in fields), f.lit(True))
    told = all_null_avro([each["type"] for each in fields])
    return empty if told is None else empty & (f.col("_value") != f.lit(told))


def all_null_avro(types: Sequence[Any]) -> bytes | None:
    """How a record whose fields are all null is written; None if one of them cannot be. A null is written as nothing,
    after the number of its branch in a union."""
    written = bytearray()
    for kind in types:
        if kind == "null":
            continue
        if not isinstance(kind, list) or "null" not in kind:
            return None
        written.append(kind.index("null") << 1)
    return bytes(written)


def good_rows(rows: DataFrame, source: TopicSource) -> DataFrame:
    """The view that steps see: the value's columns, then the record's own."""
    from pyspark.sql import functions as f

    good = rows.where(f.col(REASON).isNull())
    metadata = [f.col(name) for name in (*METADATA.values(), TOMBSTONE)]
    if source.key_format is not None:
        metadata.append(f.col(KEY_VALUE))
    if source.format == "binary":
        return good.select(f.col("_value").alias("value"), *metadata)
    if source.format == "string":
        return good.select(f.col("_value").cast("string").alias("value"), *metadata)
    if source.format == "debezium":
        # The tombstone that follows a delete says nothing that the delete has not said.
        changes = good.where(debezium.operation(f.col(PARSED)).isin(*debezium.ROW_OPERATIONS))
        names = changes.select(f"{PARSED}.after.*").columns
        return changes.select(*debezium.flattened(f.col(PARSED), names), *metadata)
    if good.schema[PARSED].dataType.typeName() != "struct":
        return good.select(f.col(PARSED).alias("value"), *metadata)
    fields = [name for name in good.select(f"{PARSED}.*").columns if name != CORRUPT]
    return good.select(*(f.col(f"{PARSED}.`{name}`").alias(name) for name in fields), *metadata)


def _parse(source: TopicSource, schema: str | None) -> Column | None:
    from pyspark.sql import functions as f

    if source.format in ("string", "binary"):
        return None
    assert schema is not None
    if source.format == "avro":
        from pyspark.sql.avro.functions import from_avro

        return from_avro("_value", schema, {"mode": "PERMISSIVE", **source.options})
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **source.options}
    text = f.col("_value").cast("string")
    if source.format == "debezium":
        schema = debezium.envelope_schema(schema)
    wanted = f"{schema}, `{CORRUPT}` STRING"
    return f.from_csv(text, wanted, options) if source.format == "csv" else f.from_json(text, wanted, options)
