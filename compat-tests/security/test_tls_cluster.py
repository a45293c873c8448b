"""Three nodes that speak TLS to clients, to each other and in the quorum, and let nobody in without a certificate."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.cluster import Cluster
from harness.tls import Certificates, TlsNode
from harness.waiting import eventually
from security.test_tls_clients import _consumed

TOPIC = "orders"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def cluster(certificates: Certificates, tmp_path: Path) -> Iterator[Cluster]:
    settings = {**certificates.broker_settings(), "tidemark.ssl.watch.interval.ms": "200"}
    made = Cluster(tmp_path / "cluster", settings=settings, make=TlsNode)
    made.start()
    yield made
    made.close()


def test_nothing_is_lost_when_a_leader_is_killed_and_certificates_are_renewed(
    cluster: Cluster, certificates: Certificates
) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, **certificates.librdkafka(), "log_level": "0"}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})])[TOPIC].result(30)
    acknowledged: list[bytes] = []
    # Idempotent: the retry of a batch whose acknowledgement died with the leader must not be stored twice.
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 2})

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.value())  # type: ignore[attr-defined]

    def produce(first: int, count: int) -> None:
        for i in range(first, first + count):
            producer.produce(TOPIC, f"{i}".encode(), on_delivery=delivered)
            producer.poll(0.001)

    produce(0, 500)
    leader = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader
    cluster.nodes[leader].kill()
    produce(500, 500)
    certificates.make("--node", "node")
    cluster.nodes[leader].start()
    produce(1000, 500)
    assert producer.flush(60) == 0
    assert len(acknowledged) == 1500
    assert sorted(_consumed(settings, TOPIC, 1500), key=int) == sorted(acknowledged, key=int)

    def all_in_sync() -> bool:
        partitions = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        return all(len(each.isrs) == 3 for each in partitions)

    eventually(all_in_sync, seconds_max=60)
    _no_way_in_for_a_stranger(cluster, certificates)


def _no_way_in_for_a_stranger(cluster: Cluster, certificates: Certificates) -> None:
    node = next(iter(cluster))
    foreign = Certificates(certificates.directory.parent / "foreign")
    for port in (node.port, node.controller_port):
        for certificate in (None, foreign.pem("client")):
            assert not _is_answered(node.host, port, certificates.ca, certificate)
        assert _is_answered(node.host, port, certificates.ca, certificates.pem("client"))


def _is_answered(host: str, port: int, ca: str, certificate: str | None) -> bool:
    """ApiVersions v0, which every listener answers to whom it lets in."""
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    try:
        with (
            socket.create_connection((host, port), 10) as sock,
            context.wrap_socket(sock, server_hostname=host) as secured,
        ):
            secured.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")
            return bool(secured.recv(4))
    except OSError:
        return False


def test_a_node_with_a_strangers_certificate_does_not_get_in(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path / "foreign")
    settings = {**foreign.broker_settings(), "ssl.truststore.location": certificates.ca}
    node = TlsNode(tmp_path / "stranger", settings, node_id=4)
    node.voters = cluster.voters
    node.begin()
    try:
        eventually(lambda: any("its certificate is not trusted" in each.log for each in cluster), seconds_max=30)
        assert "Tidemark is ready" not in node.stdout
    finally:
        node.kill()
