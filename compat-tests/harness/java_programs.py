"""Our own Java programs: compiled once against the Kafka jars, compiled again when a source changes, and run."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.java import JARS, REPOSITORY, ToolRun, classpath, tool_command

SOURCES = REPOSITORY / "compat-tests" / "java" / "src"


def compiled() -> Path:
    """The directory of classes, named after what it was compiled from."""
    sources = sorted(SOURCES.glob("*.java"))
    fingerprint = hashlib.sha256()
    for part in [*sources, *sorted(JARS.glob("kafka-clients-*.jar"))]:
        fingerprint.update(part.name.encode())
        fingerprint.update(part.read_bytes() if part.suffix == ".java" else b"")
    target = REPOSITORY / ".cache" / "java-classes" / fingerprint.hexdigest()[:16]
    if not (target / ".complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["javac", "-cp", classpath(), "-d", str(target), *map(str, sources)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (target / ".complete").touch()
    return target


def run_cases(main: str, bootstrap: str) -> dict[str, str]:
    """Every case of a program (see Case.java) with its error, empty where it passed."""
    done = subprocess.run(
        tool_command(main, bootstrap, extra_classpath=(compiled(),)),
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert reported, done.stderr[-4000:]
    return {report["case"]: report["error"] for report in reported}


def run_tools(*commands: Sequence[str]) -> list[ToolRun]:
    """Kafka's own commands, each a class and its arguments, one after the other in one JVM: a start takes longer."""
    done = subprocess.run(
        tool_command("Tools", extra_classpath=(compiled(),)),
        input="".join("\t".join(words) + "\n" for words in commands),
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    told = [ToolRun(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(told) == len(commands), f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return told
