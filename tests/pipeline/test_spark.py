"""Sessions: what is asked for is added to what ours need."""

from tidemark.pipeline.spark import java_options


def test_options_of_java_do_not_take_the_place_of_ours() -> None:
    assert "log4j2.configurationFile=file:" in java_options(None)
    assert java_options("-Xss4m") == f"{java_options(None)} -Xss4m"
