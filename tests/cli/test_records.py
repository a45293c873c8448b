import pytest

from tidemark.cli.records import BadLineError, Record, from_json, from_text, to_json, to_text


def test_a_plain_line_is_a_value_without_a_key() -> None:
    assert from_text(b"a:b", delimiter=None, empty_is_null=False) == Record(key=None, value=b"a:b")
    assert from_text(b"", delimiter=None, empty_is_null=False) == Record(key=None, value=b"")


def test_the_first_delimiter_ends_the_key() -> None:
    assert from_text(b"k::v::w", delimiter=b"::", empty_is_null=False) == Record(key=b"k", value=b"v::w")
    assert from_text(b"no key", delimiter=b"::", empty_is_null=False) == Record(key=None, value=b"no key")


def test_an_empty_value_can_be_a_tombstone() -> None:
    assert from_text(b"k:", delimiter=b":", empty_is_null=True) == Record(key=b"k", value=None)
    assert from_text(b"k:", delimiter=b":", empty_is_null=False) == Record(key=b"k", value=b"")


def test_a_json_line_carries_every_part() -> None:
    line = b'{"key": "k", "value": "v", "headers": {"a": "1", "n": null}, "partition": 2, "timestamp": 5, "offset": 9}'
    headers = (("a", b"1"), ("n", None))
    assert from_json(line) == Record(key=b"k", value=b"v", headers=headers, partition=2, timestamp=5)


def test_a_json_value_that_is_no_string_is_sent_as_json() -> None:
    assert from_json('{"value": {"a": [1, "é"]}}'.encode()).value == '{"a":[1,"é"]}'.encode()
    assert from_json(b'{"value": null}').value is None
    assert from_json(b"{}") == Record(key=None, value=None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nope", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff", "not JSON"),
        (b'{"value_base64": "%"}', "not base64"),
        (b'{"value_base64": 5}', "not base64"),
        (b'{"headers": "x"}', "headers must be"),
        (b'{"headers": [{"value": "x"}]}', "headers must be"),
        (b'{"partition": -1}', "partition is not a whole number"),
        (b'{"timestamp": true}', "timestamp is not a whole number"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, says: str) -> None:
    with pytest.raises(BadLineError, match=says):
        from_json(line)


def test_what_consume_prints_produce_takes_back() -> None:
    headers = [("a", b"1"), ("a", None), ("raw", b"\xff\x00")]
    line = to_json(topic="t", partition=1, offset=3, timestamp=7, key=b"\xfe", value="é\n".encode(), headers=headers)
    assert "\n" not in line
    taken = from_json(line.encode())
    assert taken == Record(key=b"\xfe", value="é\n".encode(), headers=tuple(headers), partition=1, timestamp=7)


def test_text_shows_keys_headers_and_nulls_as_asked() -> None:
    headers = [("h", b"1"), ("n", None)]

    def line(*, delimiter: bytes | None, show_headers: bool) -> bytes:
        return to_text(
            key=None, value=b"v", headers=headers, delimiter=delimiter, null=b"NULL", show_headers=show_headers
        )

    assert line(delimiter=None, show_headers=False) == b"v"
    assert line(delimiter=b"|", show_headers=False) == b"NULL|v"
    assert line(delimiter=None, show_headers=True) == b"h=1,n=NULL\tv"
