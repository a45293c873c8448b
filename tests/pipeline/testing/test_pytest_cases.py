"""Cases are collected by pytest wherever Tidemark is installed; nothing of Spark is loaded for that."""

import subprocess
import sys
from pathlib import Path

CASES = """\
cases:
  - {name: first, expect: {out: []}}
  - {name: second, expect: {out: []}}
"""
PIPELINE = """\
sources: {s: {topic: t}}
sinks: {out: {from: s, topic: u}}
"""


def test_cases_beside_a_pipeline_are_collected(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(PIPELINE)
    (tmp_path / "shop.cases.yaml").write_text(CASES)
    (tmp_path / "lonely.cases.yaml").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert [line for line in done.stdout.splitlines() if "::" in line] == [
        "shop.cases.yaml::first",
        "shop.cases.yaml::second",
    ], done.stdout + done.stderr
