"""Brokers that speak TLS, with certificates made by our own command, and what clients need to connect to them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.broker_process import Tidemark
from harness.cluster import ClusterNode
from harness.wire import Wire

PASSWORD = "tidemark"


class Certificates:
    """A directory with an authority, a node's certificate and clients'. Made again with another one: a stranger's."""

    def __init__(self, directory: Path, *clients: str) -> None:
        self.directory = directory
        self.make("--node", "node", *(word for each in clients or ("client",) for word in ("--client", each)))

    def make(self, *arguments: str) -> None:
        """Also again: the authority stays, the certificates are renewed."""
        command = [sys.executable, "-m", "tidemark.cli.main", "certs", "make", str(self.directory), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def pem(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def broker_settings(self, *, client_auth: str = "required") -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.pem("node"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.client.auth": client_auth,
        }

    def librdkafka(self, client: str | None = "client") -> dict[str, str]:
        settings = {"security.protocol": "SSL", "ssl.ca.location": self.ca}
        if client is not None:
            settings |= {"ssl.certificate.location": self.pem(client), "ssl.key.location": self.pem(client)}
        return settings

    def java(self, client: str = "client", *, kind: str = "PEM") -> dict[str, str]:
        common = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if kind == "PEM":
            return {**common, "ssl.keystore.type": "PEM", "ssl.keystore.location": self.pem(client)}
        store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(self.directory / f"{client}.p12")}
        return {**common, **store, "ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD}

    def java_file(self, path: Path, client: str = "client", *, kind: str = "PEM") -> Path:
        path.write_text("".join(f"{name}={value}\n" for name, value in self.java(client, kind=kind).items()))
        return path


class TlsTidemark(Tidemark):
    """One broker with an SSL listener, and nothing else."""

    def command(self) -> list[str]:
        settings = {"listeners": f"SSL://127.0.0.1:{self.port}", "log.dirs": str(self.data), **self.settings}
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "tidemark.broker", *flags]


class TlsNode(ClusterNode):
    """One of several: clients, brokers among themselves and the quorum all use TLS, with certificates on both sides."""

    def command(self) -> list[str]:
        self.settings = {**self.settings, **self._listeners()}
        return super().command()

    def _listeners(self) -> Mapping[str, str]:
        return {
            "listeners": f"SSL://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
        }


class TlsWire(Wire):
    """A raw connection inside TLS."""

    def __init__(self, host: str, port: int, certificates: Certificates, *, receive_buffer: int | None = None) -> None:
        super().__init__(host, port, receive_buffer=receive_buffer)
        context = ssl.create_default_context(cafile=certificates.ca)
        context.load_cert_chain(certificates.pem("client"))
        self.socket = context.wrap_socket(self.socket, server_hostname=host)
