"""Settings of both families of clients mean the same connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.certificates import Authority, write_private
from tidemark.client_security import BadSecurity, ClientSecurity, for_java, for_librdkafka


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    authority = Authority.make()
    issued = authority.issue("client")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    write_private(tmp_path / "client.pem", issued.key_pem() + issued.pem)
    write_private(tmp_path / "client.p12", issued.pkcs12("hunter2"))
    return {name: str(tmp_path / name) for name in ("ca.pem", "client.pem", "client.p12")}


def test_pem_files_by_javas_names(files) -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files["ca.pem"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files["client.pem"],
        "ssl.endpoint.identification.algorithm": "",
    }
    assert for_librdkafka(given) == {
        "security.protocol": "SSL",
        "ssl.ca.location": files["ca.pem"],
        "ssl.certificate.location": files["client.pem"],
        "ssl.key.location": files["client.pem"],
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert ClientSecurity(given).is_encrypted


def test_pkcs12_files_by_javas_names(files) -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": files["client.p12"],
        "ssl.truststore.password": "hunter2",
        "ssl.keystore.location": files["client.p12"],
        "ssl.keystore.password": "hunter2",
    }
    translated = for_librdkafka(given)
    assert translated["ssl.ca.pem"].count("BEGIN CERTIFICATE") == 2
    assert translated["ssl.keystore.location"] == files["client.p12"]
    assert ClientSecurity(given).is_encrypted
    with pytest.raises(BadSecurity, match="password is wrong"):
        ClientSecurity({**given, "ssl.truststore.password": "wrong"})


def test_there_and_back_again(files) -> None:
    given = {"ssl.ca.location": files["ca.pem"], "ssl.certificate.location": files["client.pem"]}
    java = for_java({**given, "security.protocol": "SSL"})
    assert java["ssl.truststore.type"] == java["ssl.keystore.type"] == "PEM"
    assert "PRIVATE KEY" in java["ssl.keystore.key"]
    assert ClientSecurity(java).is_encrypted


def test_plain_settings_load_nothing() -> None:
    assert not ClientSecurity({"acks": "1"}).is_encrypted


def test_files_that_cannot_be_used_are_told(files, tmp_path) -> None:
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    for bad in ("/nowhere.pem", str(tmp_path / "broken.pem")):
        with pytest.raises(BadSecurity, match="cannot be"):
            ClientSecurity({"security.protocol": "SSL", "ssl.ca.location": bad})
