from tidemark.cli.output import table


def test_a_table_aligns_words_left_and_numbers_right() -> None:
    rows: list[list[object]] = [["a", 1, [1, 2]], ["long", 100, []], ["x", None, [3]]]
    assert table(["name", "n", "of"], rows) == "name  n    of\na     1    1,2\nlong  100  -\nx     -    3"
    assert table(["name", "n"], [["a", 1], ["b", 100]]) == "name    n\na       1\nb     100"


def test_a_table_without_rows_is_its_head() -> None:
    assert table(["a", "b"], []).split() == ["a", "b"]
