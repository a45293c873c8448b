"""`tidemark certs make`, and commands that connect with what it made."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidemark import embedded
from tidemark.cli.main import main


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "certs"
    assert main(["certs", "make", str(made), "--client", "CN=ann,OU=ops"]) == 0
    return made


@pytest.fixture
def broker(directory: Path):
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with embedded(**settings) as started:
        yield started


def test_keys_are_for_their_owner_only(directory: Path) -> None:
    for name in ("ca.key", "node.pem", "ann.pem", "ann.p12"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600, name


def test_an_authority_is_kept_and_what_it_signed_is_renewed(directory: Path) -> None:
    before = (directory / "ca.pem").read_bytes(), (directory / "node.pem").read_bytes()
    assert main(["certs", "make", str(directory)]) == 0
    assert (directory / "ca.pem").read_bytes() == before[0]
    assert (directory / "node.pem").read_bytes() != before[1]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert main(["certs", "make", str(tmp_path / "file" / "below")]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_commands_connect_with_options(directory: Path, broker, capsys) -> None:
    tls = ["-b", broker.bootstrap, "--tls-ca", str(directory / "ca.pem"), "--tls-cert", str(directory / "ann.pem")]
    assert main(["topics", "create", "orders", *tls]) == 0  # librdkafka
    assert main(["transactions", "list", *tls]) == 0  # our own client
    assert main(["topics", "list", *tls]) == 0
    assert "orders" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_file_for_kafkas_own_tools_works(directory: Path, broker, tmp_path: Path, kind, capsys) -> None:
    config = tmp_path / "client.properties"
    ending, secrets = ("pem", "") if kind == "PEM" else ("p12", "ssl.keystore.password=tidemark\n")
    trust = directory / ("ca.pem" if kind == "PEM" else "ann.p12")
    secrets += "" if kind == "PEM" else "ssl.truststore.password=tidemark\n"
    config.write_text(
        "bootstrap.servers=elsewhere:9092\nsecurity.protocol=SSL\nssl.protocol=TLSv1.3\n"
        f"ssl.keystore.type={kind}\nssl.keystore.location={directory / 'ann'}.{ending}\n"
        f"ssl.truststore.type={kind}\nssl.truststore.location={trust}\n{secrets}"
    )
    for command in (["topics", "list"], ["transactions", "list"]):
        assert main([*command, "-b", broker.bootstrap, "--command-config", str(config)]) == 0, capsys.readouterr().err


def test_files_that_are_missing_are_named(broker, capsys) -> None:
    assert main(["topics", "list", "-b", broker.bootstrap, "--tls-ca", "/nowhere.pem"]) == 2
    assert "/nowhere.pem cannot be read" in capsys.readouterr().err
    assert main(["topics", "list", "-b", broker.bootstrap, "--command-config", "/nowhere.properties"]) == 2
    assert "--command-config" in capsys.readouterr().err


def test_what_stands_in_the_way_is_told_at_once(directory: Path, broker, tmp_path: Path, capsys) -> None:
    topics = ["topics", "list", "-b", broker.bootstrap]
    assert main([*topics, "--tls-ca", str(directory / "ca.pem")]) == 3
    assert "certificate required" in capsys.readouterr().err
    assert main(["certs", "make", str(tmp_path / "other")]) == 0
    assert main([*topics, "--tls-ca", str(tmp_path / "other" / "ca.pem")]) == 3
    assert "TLS failed: self-signed certificate in certificate chain" in capsys.readouterr().err
