"""`tidemark users`, against a broker in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemark
from tidemark.cli.main import main


def test_users_are_made_listed_changed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tidemark.embedded(security="scram") as broker:
        own, new = tmp_path / "own", tmp_path / "new"
        settings = {name: str(value) for name, value in broker.client_settings.items()}
        own.write_text(settings["sasl.password"] + "\n")
        new.write_text("new-secret\n")
        at = ["-b", broker.bootstrap, "--user", settings["sasl.username"], "--password-file", str(own)]

        def run(*words: str) -> int:
            return main(["users", *words, *at])

        given = ["--new-password-file", str(new)]
        assert run("create", "ann", *given, "--with", "SCRAM-SHA-256", "--iterations", "8192") == 0
        assert run("create", "ann", *given) == 1
        assert run("passwd", "nobody", *given) == 4
        assert run("list") == 0
        assert "ann   SCRAM-SHA-256        8192" in capsys.readouterr().out
        assert run("passwd", "ann", *given) == 0
        as_ann = ["-b", broker.bootstrap, "--user", "ann", "--password-file", str(new)]
        assert main(["topics", "list", *as_ann]) == 0
        assert main(["users", "list", *as_ann, "--mechanism", "PLAIN"]) == 3
        assert run("delete", "ann") == 0
        assert run("delete", "ann") == 4
        told = capsys.readouterr()
        assert "new-secret" not in told.out + told.err
