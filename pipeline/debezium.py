"""Debezium's envelopes: what was before, what is after, and which operation it was, as rows with a mark for deletes.

With and without the schema beside the payload, as both settings of its JSON converter write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

# Of an envelope: c(reate), r(ead), u(pdate), d(elete). t(runcate) and m(essage) name no row.
ROW_OPERATIONS = ("c", "r", "u", "d")
FIELDS = ("_op", "_delete", "_changed_ms")


def envelope_schema(columns: str) -> str:
    """DDL of an envelope around rows with these columns."""
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(columns)
    assert isinstance(parsed, StructType)
    row = f"STRUCT<{', '.join(f'`{each.name}`: {each.dataType.simpleString()}' for each in parsed.fields)}>"
    payload = f"STRUCT<before: {row}, after: {row}, op: STRING, ts_ms: BIGINT>"
    return f"before {row}, after {row}, op STRING, ts_ms BIGINT, payload {payload}"


def operation(envelope: Column) -> Column:
    return _either(envelope, "op")


def unusable(envelope: Column) -> Column:
    """Why no row can be made of an envelope that could be read; null if one can. A change that was left out in silence
    would be missing from the table for good."""
    from pyspark.sql import functions as f

    op = operation(envelope)
    rowless = op.isin(*ROW_OPERATIONS) & _row(envelope).isNull()
    return f.when(op == "t", f.lit("a truncate does not say which rows are gone")).when(
        rowless, f.concat(f.lit("a change without its row, op "), op)
    )


def flattened(envelope: Column, names: list[str]) -> list[Column]:
    """The row's columns (of a delete those that it had before), and what happened to it."""
    op, row = operation(envelope), _row(envelope)
    return [
        *(row[name].alias(name) for name in names),
        op.alias("_op"),
        (op == "d").alias("_delete"),
        _either(envelope, "ts_ms").alias("_changed_ms"),
    ]


def _row(envelope: Column) -> Column:
    from pyspark.sql import functions as f

    was_deleted = operation(envelope) == "d"
    return f.when(was_deleted, _either(envelope, "before")).otherwise(_either(envelope, "after"))


def _either(envelope: Column, field: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(envelope["payload"][field], envelope[field])
