"""Schemas over time."""

from tidemark.pipeline.schemas import changes


def test_a_new_column_is_no_trouble() -> None:
    assert changes(before={"a": "bigint"}, now={"a": "bigint", "b": "string"}) == []


def test_a_column_gone_or_of_another_type_is_named() -> None:
    assert changes(before={"a": "bigint", "b": "string"}, now={"a": "string"}) == [
        "the column 'b' is gone",
        "the column 'a' was bigint and is now string",
    ]
