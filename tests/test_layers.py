"""Who may import whom, and how large a file may grow: the rules of the house, executed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
LINES_MAX = 600

# For each package, the modules of ours that it may name. A package stands for all that is in it.
MAY_IMPORT: dict[str, set[str]] = {
    "protocol": set(),
    "raft": {"portable", "environment"},
    "storage": {"protocol.records", "protocol.compression", "portable", "environment", "files"},
    "broker": {"protocol", "storage", "raft", "portable", "environment", "files"},
    # A world for brokers to run in: it stands above all of them.
    "simulation": {"broker", "protocol", "environment", "files"},
    # The front ends share a small wire client and their failures, and neither imports the other.
    # `tidemark log` works on files: storage.tools is its door to them. `tidemark acls explain` decides as a broker
    # does, by its very code, which is without state or I/O.
    "cli": {
        "broker.config",
        "broker.core.acl",
        "broker.core.principal",
        "broker.metadata.acl_index",
        "broker.security.rights",
        "storage.tools",
        "protocol",
        "portable",
        "failure",
        "wire_client",
    },
    # Of protocol: no client library hands out what a fetch brings whole, as Arrow needs it.
    "pipeline": {"storage", "protocol", "portable", "failure", "wire_client"},
    # The pytest plugin collects the cases of pipelines.
    "tidemark": {"broker", "protocol", "pipeline.testing"},
}
# Modules that lie beside the packages, in tidemark/ itself.
SHARED = {"environment", "failure", "files", "portable", "wire_client"}


def python_files(*tops: str) -> Iterator[Path]:
    for top in tops:
        yield from sorted(path for path in (ROOT / top).rglob("*.py") if "__pycache__" not in path.parts)


class Facts(NamedTuple):
    """What the rules ask of a file, so that each file is parsed once."""

    imports: list[tuple[int, str]]  # lines and modules
    is_silent: bool  # there is code, and nothing says what for
    untyped: list[int]  # lines of functions that return Any


@cache
def facts_of(path: Path) -> Facts:
    tree = ast.parse(path.read_bytes())
    facts = Facts([], is_silent=bool(tree.body) and not ast.get_docstring(tree), untyped=[])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            facts.imports.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            facts.imports.extend((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_any(node.returns):
            facts.untyped.append(node.lineno)
    return facts


def _is_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def of_ours(path: Path) -> Iterator[tuple[int, str]]:
    """What is named of our packages, without the name that all of them share."""
    for line, module in facts_of(path).imports:
        if module.startswith("tidemark.") and module.split(".")[1] in MAY_IMPORT.keys() | SHARED:
            yield line, module.removeprefix("tidemark.")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_names_only_what_lies_below_it(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package} | (SHARED if package == "tidemark" else set())
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in python_files(package)
        for line, module in of_ours(path)
        if not any(f"{module}.".startswith(f"{name}.") for name in allowed)
    ]
    assert not wrong


def test_nothing_is_imported_past_the_one_name() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in python_files(*MAY_IMPORT, "tests", "compat-tests", "bench")
        for line, module in facts_of(path).imports
        if module.split(".")[0] in MAY_IMPORT.keys() - {"tidemark"}
    ]
    assert not wrong


def test_import_linter_finds_no_way_around() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*MAY_IMPORT, "tests", "compat-tests", "bench")
    }
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path.relative_to(ROOT)) for path in python_files(*MAY_IMPORT) if facts_of(path).is_silent]
    assert silent == []


def test_no_function_returns_any() -> None:
    """What a caller gets is named: a type variable, a protocol, `object`, or `Answer[T]` where it may be deferred."""
    untyped = [
        f"{path.relative_to(ROOT)}:{line}" for path in python_files(*MAY_IMPORT) for line in facts_of(path).untyped
    ]
    assert untyped == []
