"""Java programs of ours that run until they are told to end or are killed, watched through what they print."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from harness.java import tool_command
from harness.java_programs import compiled
from harness.waiting import eventually

STOP_SECONDS_MAX = 60


class JavaProcess:
    """One life of a program. It ends when its standard input does."""

    def __init__(self, main: str, *arguments: str, directory: Path) -> None:
        """`directory` is for what a JVM leaves behind when it is killed (unpacked native libraries)."""
        directory.mkdir(parents=True, exist_ok=True)
        command = tool_command(main, *arguments, extra_classpath=(compiled(),))
        command[1:1] = [f"-Djava.io.tmpdir={directory}"]
        self.log_path = directory / "stderr.log"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.strip())

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for(self, line: str, *, seconds_max: float) -> None:
        def said() -> bool:
            assert line in self.said
            return True

        eventually(said, seconds_max=seconds_max, what=f"{line} from a Java program")

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Ends its input and waits; one that does not end by itself is killed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
