"""What docs/simulation.md shows is what runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_the_example_of_ones_own_code_in_a_simulated_cluster_runs() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {"__name__": "example"})
