"""How the tests share the machine: which run side by side, which together in one process, which alone.

`make test` starts several pytest workers. A file's tests stay together, since they share what its fixtures start; tests
that take long are dealt out one by one; a folder whose tests need Spark shares one JVM. A test marked `alone` measures
time or fills the machine: while it runs, no other does.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent
sys.path.append(str(ROOT / "compat-tests"))  # at the end, so that no folder there can shadow a client library

TOGETHER: Final = {  # folder -> the group of its tests
    "tests/pipeline": "pipeline",
    "compat-tests/spark": "spark",
}
ONE_BY_ONE: Final = (
    "compat-tests/cluster",
    "compat-tests/durability",
    "compat-tests/groups",
    "compat-tests/pipelines",
    "tests/broker/groups",
    "tests/broker/transactions",
)
LONGEST_FIRST: Final = (  # the groups before single tests: behind one of those they would begin minutes later
    "tests/pipeline",
    "compat-tests/spark",
    "compat-tests/pipelines",
    "compat-tests/versions",
    *ONE_BY_ONE,
)
RUN_ID: Final = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")  # the same in all workers of one run; else empty


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: no other test runs meanwhile")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Workers must agree on the names of tests: bytes, which may hold a time (gzip's do), are not part of them."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, or they would begin when the others are done. Files with a test that runs alone come last:
    before it begins, everybody waits for the longest that is at work."""
    if RUN_ID:
        last = {item.path for item in items if item.get_closest_marker("alone")}
        items.sort(key=lambda item: (item.path in last, _rank(item.nodeid)))


def _rank(nodeid: str) -> int:
    return next((rank for rank, folder in enumerate(LONGEST_FIRST) if nodeid.startswith(folder)), len(LONGEST_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid.partition("::")[0]) or nodeid

    return ByGroup(config, log)


def _group(path: str) -> str | None:
    for folder, group in TOGETHER.items():
        if path.startswith(f"{folder}/"):
            return group
    return None if path.startswith(ONE_BY_ONE) else path


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around everything else, so that waiting for other tests does not count towards a test's time-out."""
    if not RUN_ID:
        return (yield)
    with _turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    """One test alone, or several together. A test that wants to be alone closes the gate: then no other test begins."""
    folder = tempfile.gettempdir()
    with (
        open(f"{folder}/tidemark-tests-{RUN_ID}.gate", "w") as gate,
        open(f"{folder}/tidemark-tests-{RUN_ID}.lock", "w") as lock,
    ):
        fcntl.flock(gate, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield
