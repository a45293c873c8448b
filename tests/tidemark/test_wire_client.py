import pytest

from tidemark.wire_client import BadAddress, parse_address, parse_addresses


def test_addresses_take_every_form_that_librdkafka_takes() -> None:
    assert parse_address("host:1") == ("host", 1)
    assert parse_address("host", default_port=9092) == ("host", 9092)
    assert parse_address("[::1]:5") == ("::1", 5)
    assert parse_address("[::1]", default_port=9092) == ("::1", 9092)
    assert parse_address("SSL://host:7") == ("host", 7)
    assert parse_addresses("a:1, b:2") == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:65536", "host:²", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress, match="is not host:port"):
        parse_address(text)
