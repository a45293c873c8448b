"""Users that are made before the first start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sasl_client import log_in

from tidemark.broker.format import main
from tidemark.protocol.messages.metadata import MetadataRequest


async def make(directory: Path, *users: str) -> int:
    words = [word for user in users for word in ("--add-scram", user)]
    return await asyncio.to_thread(main, ["--set", f"log.dirs={directory}", *words])


async def test_a_node_that_has_never_run_knows_its_first_user(start_node: Any, connect: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a,b=c\n")
    directory = tmp_path / "data"
    file = f"SCRAM-SHA-512=[name=ann,password=${{file:{tmp_path}/secret}},iterations=8192]"
    assert await make(directory, file, "SCRAM-SHA-256=[name=bob,password=p,q]") == 0
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    node = await start_node(directory, **settings)
    for user, password, mechanism in (("ann", "a,b=c", "SCRAM-SHA-512"), ("bob", "p,q", "SCRAM-SHA-256")):
        client = await connect(node)
        assert (await log_in(client, user, password, mechanism)).error_code == 0
        assert (await client.ask(MetadataRequest(topics=[]))).brokers
    assert not (directory / "tidemark-metadata" / "first-records").exists()
    await node.stop()
    assert await make(directory, "SCRAM-SHA-256=[name=eve,password=x]") == 1


@pytest.mark.parametrize(
    "text",
    [
        "PLAIN=[name=a,password=hush]",
        "SCRAM-SHA-256=[password=hush]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=hush,iterations=1]",
        "SCRAM-SHA-256=[name=a,saltedpassword=hush]",
        "hush",
    ],
)
async def test_what_cannot_be_used_is_refused_without_being_repeated(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await make(tmp_path / "data", text) == 2
    assert "hush" not in capsys.readouterr().err
