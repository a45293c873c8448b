"""An authority, and settings made from what it signs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.broker.config import BrokerConfig, load_config
from tidemark.certificates import Authority, Certificate


class Stores:
    """A node's certificate on disk, and the settings that name it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority.make()
        self.node = self.authority.issue("node", ["127.0.0.1", "localhost"])
        self.key_file = directory / "node.pem"
        self.trust_file = directory / "ca.pem"
        self.trust_file.write_bytes(self.authority.pem)
        self.write(self.node)

    def write(self, node: Certificate, *, password: str | None = None) -> None:
        self.key_file.write_bytes(node.key_pem(password) + node.pem)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_file),
        }

    def config(self, **more: str) -> BrokerConfig:
        extra = {name.replace("_", "."): value for name, value in more.items()}
        return load_config(overrides={"listeners": "SSL://127.0.0.1:0", **self.settings, **extra})


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)
