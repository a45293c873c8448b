"""Running Apache Kafka's own tools from the jars that `make jars` gathers."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
JARS = REPOSITORY / ".cache" / "jars"
TOOLS_LOGGING = Path(__file__).with_name("log4j2-tools.properties")
# A tool lives for a second or two: compiling hard and collecting in parallel only costs it time.
JAVA = ("java", "-Djava.awt.headless=true")
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")
# For JVMs that others start, as PySpark does. A Spark session that runs one query takes half the CPU time with it.
SHORT_LIVED_ENVIRONMENT = {"JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


def classpath(*extra: Path) -> str:
    assert any(JARS.glob("kafka-clients-*.jar")), f"no Kafka jars in {JARS}: run `make jars`"
    return ":".join([*(str(path) for path in extra), str(JARS / "*")])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def checked(self) -> ToolRun:
        assert self.code == 0, f"exit code {self.code}\nstdout:\n{self.stdout}\nstderr:\n{self.stderr}"
        return self


def tool_command(main: str, *arguments: str, extra_classpath: tuple[Path, ...] = ()) -> list[str]:
    return [
        *JAVA, *SHORT_LIVED, f"-Dlog4j2.configurationFile={TOOLS_LOGGING}", "-cp", classpath(*extra_classpath),
        main, *arguments,
    ]  # fmt: skip


def run_tool(main: str, *arguments: str, stdin: str | None = None, timeout: float = 90) -> ToolRun:
    done = subprocess.run(
        tool_command(main, *arguments),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return ToolRun(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
