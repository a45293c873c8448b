"""The image: built and run where a Docker engine answers; checked as far as that goes without one where none does."""

import contextlib
import gc
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import DockerException

from tidemark.broker.config import load_config
from tidemark.cli.main import parse

ROOT = Path(__file__).parents[1]
PACKAGES = ("broker", "cli", "pipeline", "protocol", "raft", "storage", "tidemark")


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """The Docker engine, or None where none answers."""
    client = None
    with warnings.catch_warnings():
        # Where nothing answers, the docker package leaves the socket that it tried to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        with contextlib.suppress(DockerException):
            candidate = docker.from_env(timeout=600)
            candidate.ping()
            client = candidate
        gc.collect()
    yield client
    if client is not None:
        client.close()


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """The Dockerfile's instructions, by stage."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    found: list[list[tuple[str, str]]] = []
    for line in lines:
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            found.append([])
        found[-1].append((instruction, rest.strip()))
    return found


def only(stage: list[tuple[str, str]], instruction: str) -> str:
    [rest] = [rest for name, rest in stage if name == instruction]
    return rest


def test_the_image_is_built_in_two_stages_on_a_slim_base(stages: list[list[tuple[str, str]]]) -> None:
    build, image = stages
    assert only(build, "FROM") == "python:3.11-slim AS build"
    assert only(image, "FROM") == "python:3.11-slim"
    assert only(image, "COPY").startswith("--from=build ")


def test_the_build_is_given_every_package_and_little_else() -> None:
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    admitted = {rule[1:] for rule in rules if rule.startswith("!")}
    assert "*" in rules
    assert admitted == {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", *PACKAGES}
    assert all((ROOT / name).exists() for name in admitted - {"README.md"})


def test_the_broker_is_not_root_and_owns_its_volume(stages: list[list[tuple[str, str]]]) -> None:
    image = stages[-1]
    user, volume = only(image, "USER"), only(image, "VOLUME")
    assert user.isdecimal()
    assert int(user) > 0
    assert f"--uid {user}" in only(image, "RUN")
    assert re.search(rf"install -d -o tidemark .*{re.escape(volume)}", only(image, "RUN"))


def test_the_health_check_is_a_command_that_we_have(stages: list[list[tuple[str, str]]]) -> None:
    command = json.loads(only(stages[-1], "HEALTHCHECK").partition("CMD")[2])
    assert command[0] == "tidemark"
    args = parse(command[1:])
    assert f"http.listeners={args.url.upper()}" in only(stages[-1], "ENTRYPOINT")


def test_the_entry_point_starts_a_broker_that_others_can_reach(
    stages: list[list[tuple[str, str]]], tmp_path: Path
) -> None:
    image = stages[-1]
    stand_in = tmp_path / "tidemark"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    command = [*json.loads(only(image, "ENTRYPOINT")), "--set", "num.partitions=3"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    env = dict(item.split("=", 1) for item in shlex.split(only(image, "ENV"))) | {"PATH": path}
    started = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    args = parse(started)
    config = load_config(args.config, args.settings)
    assert [str(listener) for listener in config.parsed_listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    assert [str(listener) for listener in config.parsed_advertised_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.log_dirs == (only(image, "VOLUME"),)
    assert config.num_partitions == 3


def test_the_wheel_holds_every_package_and_both_commands(tmp_path: Path) -> None:
    source = tmp_path / "source"  # what the image's first stage sees, and nothing that an earlier build left behind
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "README.md").touch()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("tidemark-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [entry_points] = [name for name in names if name.endswith("entry_points.txt")]
        commands = archive.read(entry_points).decode()
    modules = {str(path.relative_to(source)) for package in PACKAGES for path in (source / package).rglob("*.py")}
    assert {name if name.startswith("tidemark/") else f"tidemark/{name}" for name in modules} <= set(names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tidemark"}
    assert "tidemark = tidemark.cli.main:main" in commands
    assert "streaming-system = tidemark.cli.main:main" in commands


@pytest.mark.timeout(900)
def test_the_image_builds_runs_and_is_healthy(engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if engine is None:
        with capsys.disabled():
            print("\nNo Docker engine answers here: the Dockerfile was checked without building it.")
        return
    image, _ = engine.images.build(path=str(ROOT), rm=True)
    container = engine.containers.run(image.id, detach=True)
    try:
        assert b"Tidemark is ready" in next(iter(container.logs(stream=True, stderr=False)))
        for command in (image.attrs["Config"]["Healthcheck"]["Test"][1:], ["sh", "-c", "echo hi | tidemark produce t"]):
            done = container.exec_run(command)
            assert done.exit_code == 0, done.output
        assert container.exec_run(["tidemark", "consume", "t", "--from-beginning", "-e"]).output == b"hi\n"
        assert container.exec_run(["id", "-u"]).output.strip() == b"10001"
        container.stop(timeout=30)
        assert container.wait()["StatusCode"] == 0
    finally:
        container.remove(force=True, v=True)
        engine.images.remove(image.id, force=True)
