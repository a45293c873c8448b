"""Sessions: what is asked for is added to what ours need."""

from tidemark.pipeline.spark import java_options, shuffle_partitions


def test_options_of_java_do_not_take_the_place_of_ours() -> None:
    assert "log4j2.configurationFile=file:" in java_options(None)
    assert java_options("-Xss4m") == f"{java_options(None)} -Xss4m"


def test_a_small_machine_has_no_more_partitions_than_it_works_on_at_once() -> None:
    for master, expected in (("local", 1), ("local[1]", 1), ("local[2]", 2), ("local[16]", 4), ("spark://h:7077", 4)):
        assert shuffle_partitions(master) == expected
    assert 1 <= shuffle_partitions("local[*]") <= 4
