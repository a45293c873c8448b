"""Nothing in broker/, storage/ and raft/ reaches around the environment: a simulation would not be one."""

from __future__ import annotations

import ast
import contextvars
from collections.abc import Iterator
from pathlib import Path

from tidemark.environment import REAL, Environment, current, enter, monotonic

ROOT = Path(__file__).resolve().parents[2]

# What these do is done once, by a process that is no node yet, or is what a simulation has no use for.
MAY = {
    "broker/__main__.py",  # the process
    "broker/config/files.py",  # the files of settings, before there is a node
    "broker/core/api_table.py",  # which handlers there are: our own source
    "broker/core/loop_delay.py",  # the alarm clock of a process
    "broker/format.py",
    "broker/logs/background.py",  # the log of a process
    "broker/logs/setup.py",  # likewise
    "broker/offline_command.py",  # what commands on a stopped node share
    "broker/recover_quorum.py",
    "storage/cleaning/worker.py",  # another process, which works on real files
    "storage/scrubbing/worker.py",  # likewise
    "storage/workers/process.py",  # starts them; with other files a node does such work on its own executor
}
MODULES = {"time", "threading", "uuid", "secrets", "tempfile", "shutil", "subprocess", "mmap", "multiprocessing"}
FROM = {("concurrent.futures", "ThreadPoolExecutor"), ("random", "random"), ("time", "monotonic")}
OS = {
    *("open", "close", "read", "write", "pread", "pwrite", "preadv", "pwritev", "writev", "sendfile", "dup", "urandom"),
    *("fsync", "fdatasync", "ftruncate", "truncate", "fstat", "stat", "lstat", "statvfs", "listdir", "scandir", "walk"),
    *("rename", "replace", "unlink", "remove", "mkdir", "makedirs", "rmdir", "link", "symlink", "getrandom"),
}
OS_PATH = {"exists", "isfile", "isdir", "getsize", "getmtime", "realpath"}
PORTABLE = {"sync_all", "sync_data", "send_file", "is_cached", "read_cached", "read_cached_into", "load_pages"}
PATHS = {"read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "glob", "rglob", "is_dir", "is_file"}
OF_SOCKETS = "broker/server/response_writer.py"


def found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in MODULES | {"random"}:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (node.module, alias.name) in FROM or (node.module in MODULES and alias.name != "UUID"):
                    yield node.lineno, f"from {node.module} import {alias.name}"
        elif isinstance(node, ast.Call):
            yield from calls(node)


def calls(node: ast.Call) -> Iterator[tuple[int, str]]:
    function = node.func
    if isinstance(function, ast.Name) and (function.id == "open" or (function.id == "Random" and not node.args)):
        yield node.lineno, f"{function.id}("
    elif isinstance(function, ast.Attribute):
        owner = ast.unparse(function.value)
        forbidden = {"os": OS, "os.path": OS_PATH, "portable": PORTABLE, "socket": {"socket"}, "asyncio": {"to_thread"}}
        if function.attr in forbidden.get(owner, ()) or function.attr in PATHS:
            yield node.lineno, f"{owner}.{function.attr}("


def sources() -> list[str]:
    paths = (path for folder in ("broker", "storage", "raft") for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def test_time_chance_threads_files_and_sockets_come_from_the_environment() -> None:
    around = [
        f"{name}:{line}: {what}"
        for name in sources()
        if name not in MAY
        for line, what in found(ast.parse((ROOT / name).read_text()))
        if name != OF_SOCKETS or what not in ("os.dup(", "os.close(")
    ]
    assert not around, "use tidemark.environment or tidemark.files instead (CONTRIBUTING.md)"


def test_the_modules_that_may_are_there() -> None:
    assert set(sources()) >= MAY


def test_what_reaches_around_is_seen() -> None:
    text = "import time\nfrom time import monotonic\nopen('x')\nos.urandom(3)\nPath('x').read_text()\nRandom()\n"
    assert [line for line, _ in found(ast.parse(text))] == [1, 2, 3, 4, 5, 6]


def test_a_context_has_its_own_world() -> None:
    class Standstill(Environment):
        def monotonic(self) -> float:
            return 7.0

    def inside() -> float:
        enter(Standstill())
        return monotonic()

    assert contextvars.copy_context().run(inside) == 7.0
    assert current() is REAL
