import argparse

import pytest

from tidemark.cli.positions import BEGINNING, END, Position, parse_position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("0", Position(kind="offset", number=0)),
        ("42", Position(kind="offset", number=42)),
        ("-5", Position(kind="last", number=5)),
        ("s@1700000000000", Position(kind="time", number=1_700_000_000_000)),
        ("s@1970-01-01T00:00:01", Position(kind="time", number=1000)),
        ("s@1970-01-02", Position(kind="time", number=86_400_000)),
        ("s@1970-01-01T01:00+01:00", Position(kind="time", number=0)),
    ],
)
def test_every_form_of_a_position_is_understood(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "start", "1.5", "--1", "s@", "s@yesterday", "1" * 30])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_position(text)
