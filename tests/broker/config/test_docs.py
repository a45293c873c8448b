from pathlib import Path

from tidemark.broker.config.docs import page

ROOT = Path(__file__).parents[3]


def test_the_settings_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"
