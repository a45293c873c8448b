"""The file of cases."""

from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.testing.cases import Given, cases_beside, given_record, pipeline_beside, read_cases


def test_a_mapping_without_key_and_value_is_the_value_itself() -> None:
    assert given_record({"id": 1}) == Given(value=b'{"id": 1}')
    assert given_record({"key": "k", "value": None}) == Given(key=b"k")
    assert given_record("text") == Given(value=b"text")
    assert given_record({"base64": "AAE="}) == Given(value=b"\x00\x01")
    assert given_record({"value": 1, "headers": {"h": "x"}}).headers == (("h", b"x"),)


def test_cases_are_read_and_times_stay_texts(tmp_path: Path) -> None:
    file = tmp_path / "shop.cases.yaml"
    file.write_text(
        "cases:\n- name: one\n  given: {s: [{at: 2030-01-31T12:00:00Z}]}\n  expect: {t: []}\n"
        "  then: {given: {s: []}, expect: {u: []}}\n"
    )
    [case] = read_cases(file)
    assert case.given["s"] == (Given(value=b'{"at": "2030-01-31T12:00:00Z"}'),)
    assert case.sinks == {"t", "u"}
    (tmp_path / "shop.yaml").touch()
    assert cases_beside(tmp_path / "shop.yaml") == file
    assert pipeline_beside(file) == tmp_path / "shop.yaml"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cases: []", "it must have a list of 'cases'"),
        ("cases: [{given: {}}]", "every case is a mapping with a 'name'"),
        ("cases: [{name: a, expct: {}}]", "a: unknown key 'expct'"),
        ("cases: [{name: a}]", "a: a case needs 'expect' or 'fails'"),
        ("cases: [{name: a, expect: {s: 1}}]", "a: expect must map names to lists"),
        ("cases: [{name: a, expect: {}}, {name: a, expect: {}}]", "two cases are named 'a'"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "x.cases.yaml"
    file.write_text(text)
    with pytest.raises(CommandFailed, match=told):
        read_cases(file)
