"""A cluster as it would stand on an open network: TLS and logins between nodes and clients, and an authorizer."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from harness.cluster import Cluster, ClusterNode
from harness.sasl import ADMIN, librdkafka
from harness.scram_users import Users
from harness.tls import Certificates, TlsWire
from harness.wire import Wire, header

USER = ("ann", "ann-secret")
LOOPBACK = ("localhost", "127.0.0.1")
HANDSHAKE, AUTHENTICATE = 17, 36
SETTINGS = {
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.plain.users": json.dumps(dict([ADMIN])),
    "sasl.node.user": "node",
    "sasl.node.password": "node-secret",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:admin",
    # So that clients and nodes log in again all the time, and new certificates are seen soon.
    "connections.max.reauth.ms": "5000",
    "tidemark.ssl.watch.interval.ms": "200",
}


class SecureNode(ClusterNode):
    def command(self) -> list[str]:
        listeners = f"SASL_SSL://{self.host}:{self.port},CONTROLLER://{self.host}:{self.controller_port}"
        self.settings = {**self.settings, "listeners": listeners}
        return super().command()


class SecureCluster(Cluster):
    """Its administrator logs in by PLAIN; `user` is what clients are told who log in by SCRAM, as ann."""

    def __init__(
        self,
        directory: Path,
        *,
        hosts: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        make: Callable[..., ClusterNode] = SecureNode,
        nodes: int = 3,
    ) -> None:
        """`hosts`: where nodes will be, if not on this machine's own address."""
        self._hosts = ",".join((*LOOPBACK, *hosts))
        self.certificates = Certificates(directory / "certificates")
        self.renew_certificates()
        known = {**SETTINGS, **self.certificates.broker_settings(client_auth="none"), **(settings or {})}
        super().__init__(directory, nodes=nodes, settings=known, make=make)
        tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": self.certificates.ca}
        self.client = {**librdkafka("", "PLAIN", *ADMIN), **tls}
        self.user = {**librdkafka("", "SCRAM-SHA-512", *USER), **tls}
        for each in (self.client, self.user):
            del each["bootstrap.servers"]
        file = directory / "admin.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.client.items()))
        self.options = ("--command-config", str(file))

    def renew_certificates(self) -> None:
        self.certificates.make("--node", f"node={self._hosts}")

    def let_in(self, *, topic: str, groups: Sequence[str]) -> None:
        """Ann may use the topic, and groups whose names begin so; nothing else."""
        Users(self.bootstrap, self.client).set(*USER, "SCRAM-SHA-512")
        wanted = [(ResourceType.TOPIC, topic), *((ResourceType.GROUP, each) for each in groups)]
        entries = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, f"User:{USER[0]}", "*", AclOperation.ALL,
                       AclPermissionType.ALLOW)
            for kind, name in wanted
        ]  # fmt: skip
        for future in self.admin().create_acls(entries).values():
            future.result(30)

    def connect(self, node: ClusterNode) -> Wire:
        wire = TlsWire(node.host, node.port, self.certificates)
        log_in(wire, *ADMIN)
        return wire


def log_in(wire: Wire, user: str, password: str) -> None:
    """By PLAIN, byte by byte."""
    token = f"\0{user}\0{password}".encode()
    wire.send_frame(header(HANDSHAKE, 1, 1) + struct.pack(">h", 5) + b"PLAIN")
    assert struct.unpack(">ih", wire.receive_frame()[:6]) == (1, 0)
    wire.send_frame(header(AUTHENTICATE, 0, 2) + struct.pack(">i", len(token)) + token)
    assert struct.unpack(">ih", wire.receive_frame()[:6]) == (2, 0)
