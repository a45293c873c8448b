"""Differences that a person can read."""

from tidemark.pipeline.testing.comparing import differences


def test_rows_in_another_order_are_the_same_rows() -> None:
    assert differences([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]) == []
    assert differences([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}], ordered=True) != []


def test_the_field_that_differs_is_named() -> None:
    told = differences(
        [{"key": "1", "value": {"id": 1, "country": "DE"}}], [{"key": "1", "value": {"id": 1, "country": None}}]
    )
    assert told == [
        'expected    {"key": "1", "value": {"id": 1, "country": "DE"}}',
        'got         {"key": "1", "value": {"id": 1, "country": null}}',
        '            value.country: expected "DE", got null',
    ]


def test_what_is_missing_and_what_is_too_many_is_told() -> None:
    assert differences([{"a": 1, "b": 2}], []) == ['missing     {"a": 1, "b": 2}']
    assert differences([], [{"a": 1}]) == ['unexpected  {"a": 1}']
    assert differences([{"a": 1}, {"a": 1}], [{"a": 1}]) == ['missing     {"a": 1}']


def test_null_and_absent_are_the_same_and_numbers_are_by_value_but_true_is_not_one() -> None:
    assert differences([{"a": 1, "b": None}], [{"a": 1.0}]) == []
    assert differences([{"a": True}], [{"a": 1}]) != []


def test_ignored_fields_are_left_out_wherever_they_are() -> None:
    assert differences([{"a": 1}], [{"a": 1, "at": "now"}], ignore=["at"]) == []
    assert differences([{"value": {"a": 1, "at": 2}}], [{"value": {"a": 1, "at": 3}}], ignore=["value.at"]) == []


def test_very_many_differences_are_cut() -> None:
    told = differences([], [{"a": number} for number in range(500)])
    assert len(told) == 41
    assert told[-1] == "… and 460 more lines"
