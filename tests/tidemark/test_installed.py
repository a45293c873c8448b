"""Tidemark as a user installs it, in a project that has packages named as our folders are.

Wheel, sdist and editable install are made from a copy of this tree, and installed into environments that find their
dependencies where this run does, so that nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("broker", "cli", "pipeline", "protocol", "raft", "simulation", "storage")
BUILT_FROM = (*FOLDERS, "tidemark", "pyproject.toml", "README.md", "LICENSE")
OWN_PACKAGES = (*FOLDERS, "config")
SETUPTOOLS_VERSION_MIN = 77  # as pyproject.toml says
READY = re.compile(r"Tidemark is ready: (?P<address>\S+) ")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Without what would let an environment find this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL"))}


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of its own, with the dependencies of this run."""

    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def packages(self) -> Path:
        [found] = self.path.glob("lib/python*/site-packages")
        return found

    def script(self, name: str) -> Path:
        return self.path / "bin" / name

    def install(self, *what: str | Path, cwd: Path) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "-q", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--no-index", "--no-build-isolation", *what, cwd=cwd)


def make_environment(path: Path, *libraries: Path) -> Environment:
    run(sys.executable, "-m", "venv", "--without-pip", path, cwd=path.parent)
    made = Environment(path)
    # Of the folders that are named in a .pth file, the .pth files are not read: this checkout stays unknown.
    shared = [*libraries, *(Path(each) for each in sys.path if each.endswith("site-packages"))]
    (made.packages / "dependencies.pth").write_text("".join(f"{each}\n" for each in shared))
    return made


@pytest.fixture(scope="module")
def setuptools(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Where the build backend is, if not in this environment: it comes with `make install`, and may be older."""
    if int(version("setuptools").split(".")[0]) >= SETUPTOOLS_VERSION_MIN:
        return []
    folder = tmp_path_factory.mktemp("setuptools")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", folder)
    run(*pip, f"setuptools>={SETUPTOOLS_VERSION_MIN}", cwd=folder)
    return [folder]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads."""
    copy = tmp_path_factory.mktemp("tree")
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    return copy


def build(kind: str, tree: Path, setuptools: list[Path]) -> Path:
    """The one file that the build backend makes, as any build front end asks it to."""
    out = tree / "out"
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    library = {"PYTHONPATH": os.pathsep.join(map(str, setuptools))} if setuptools else {}
    name = run(sys.executable, "-c", code, out, cwd=tree, **library).splitlines()[-1]
    return out / name


@pytest.fixture(scope="module")
def wheel(tree: Path, setuptools: list[Path]) -> Path:
    return build("wheel", tree, setuptools)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = make_environment(tmp_path_factory.mktemp("installed") / "venv")
    made.install(wheel, cwd=wheel.parent)
    return made


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with packages of its own that have our folders' names, and tests that use them and Tidemark."""
    project = tmp_path_factory.mktemp("project")
    for name in OWN_PACKAGES:
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("OWNER = 'the sample project'\n")
    imports = ", ".join(OWN_PACKAGES)
    (project / "test_sample.py").write_text(f"import {imports}\nPACKAGES = [{imports}]\n{SAMPLE_TESTS}")
    return project


SAMPLE_TESTS = """
import sys

import tidemark
from confluent_kafka import Producer


def test_the_projects_own_packages_are_its_own():
    assert {package.OWNER for package in PACKAGES} == {"the sample project"}


def test_the_installed_tidemark_is_used():
    assert tidemark.__file__.startswith(sys.prefix)


def send(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"hello")
    assert producer.flush(10) == 0


def test_the_fixture(tidemark_broker, tidemark_topic):
    send(tidemark_broker.bootstrap, tidemark_topic)


def test_an_embedded_broker():
    with tidemark.embedded() as broker:
        send(broker.bootstrap, "topic")
    assert {package.OWNER for package in PACKAGES} == {"the sample project"}
"""


@pytest.fixture
def started(installed: Environment, project: Path, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a broker process, started from the project's folder by the command that the test names."""
    settings = ("--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={tmp_path}")
    command = [str(installed.path / "bin" / request.param[0]), *request.param[1:], *settings]
    with subprocess.Popen(command, cwd=project, env=clean_environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = READY.match(process.stdout.readline())
            assert ready is not None
            yield ready["address"]
        finally:
            process.terminate()


def test_a_wheel_has_one_package_and_all_of_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tidemark"}
    ours = {
        f"tidemark/{path.relative_to(ROOT)}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours - names == set()
    assert {"tidemark/py.typed", "tidemark/wire_client.py", "tidemark/pipeline/log4j2.properties"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_an_sdist_makes_the_same_wheel(wheel: Path, tree: Path, setuptools: list[Path], tmp_path: Path) -> None:
    # tar, since Python's own way to do it safely differs: it came with 3.11.4
    subprocess.run(["tar", "-xf", build("sdist", tree, setuptools), "-C", tmp_path], check=True)
    [unpacked] = tmp_path.iterdir()
    again = build("wheel", unpacked, setuptools)
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_the_fixture_and_an_embedded_broker_serve_a_project_with_such_packages(
    installed: Environment, project: Path
) -> None:
    told = run(installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert "4 passed" in told


@pytest.mark.parametrize(
    "started",
    [("tidemark", "start"), ("python", "-P", "-m", "tidemark.broker"), ("python", "-m", "tidemark.broker")],
    indirect=True,
    ids=" ".join,
)
def test_the_command_line_works_in_such_a_project(installed: Environment, project: Path, started: str) -> None:
    tidemark = installed.script("tidemark")
    run(tidemark, "topics", "create", "orders", "-b", started, cwd=project)
    assert run(tidemark, "topics", "list", "-b", started, cwd=project) == "orders\n"
    listed = run(installed.script("streaming-system"), "topics", "list", "--bootstrap-server", started, cwd=project)
    assert listed == "orders\n"
    assert "voter" not in run(tidemark, "cluster", "under-replicated", "-b", started, cwd=project)


def test_an_editable_install_finds_the_tree(tree: Path, setuptools: list[Path], project: Path, tmp_path: Path) -> None:
    made = make_environment(tmp_path / "venv", *setuptools)
    made.install("--config-settings", "editable_mode=compat", "-e", tree, cwd=tmp_path)
    show = "import tidemark.broker, tidemark.wire_client; print(tidemark.broker.__file__)"
    assert run(made.python, "-P", "-c", show, cwd=project).strip() == str(tree / "tidemark" / "broker" / "__init__.py")
    assert run(made.script("tidemark"), "--version", cwd=project).startswith("tidemark ")
