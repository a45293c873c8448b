"""Real clients over an SSL listener that asks them for certificates."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from harness.broker_process import BrokerProcess
from harness.java_programs import run_tools
from harness.requests import batches, fetch_fields, fetched, metadata, partition_to_fetch
from harness.tls import Certificates, TlsTidemark, TlsWire
from harness.waiting import eventually

from tidemark.certificates import Authority

COUNT = 500


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "client", "CN=ann,OU=ops")


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = TlsTidemark(
        tmp_path_factory.mktemp("broker"),
        {**certificates.broker_settings(), "tidemark.ssl.watch.interval.ms": "100", "num.partitions": "1"},
    )
    started.start()
    yield started
    started.close()


def test_confluent_kafka(broker: BrokerProcess, certificates: Certificates) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, **certificates.librdkafka()}
    producer = Producer(settings)
    values = [f"{i}".encode() * (i % 300 + 1) for i in range(COUNT)] + [bytes(900_000)]
    for value in values:
        producer.produce("confluent", value)
    assert producer.flush(30) == 0
    assert _consumed(settings, "confluent", len(values)) == values


WITHOUT_ONE_OF_OURS = {
    None: "it shows no certificate",
    "foreign": "its certificate is not trusted",
    "expired": "its certificate is not trusted: certificate has expired",
}


def _expired(certificates: Certificates, path: Path) -> str:
    """Signed by our authority, for a day that is over."""
    made = Authority.load(certificates.directory).issue(
        "client", days=1, now=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    )
    path.write_bytes(made.key_pem() + made.pem)
    return str(path)


@pytest.mark.parametrize("client", WITHOUT_ONE_OF_OURS)
def test_librdkafka_without_our_certificate_gets_nowhere(
    broker: BrokerProcess, certificates: Certificates, tmp_path: Path, client: str | None
) -> None:
    settings = certificates.librdkafka(None)
    if client is not None:
        is_expired = client == "expired"
        shown = _expired(certificates, tmp_path / "old.pem") if is_expired else Certificates(tmp_path).pem("client")
        settings |= {"ssl.certificate.location": shown, "ssl.key.location": shown}
    errors: list[int] = []
    settings |= {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.code())})
    eventually(lambda: producer.poll(0.1) is not None and bool(errors), seconds_max=30)
    assert set(errors) <= {KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
    eventually(lambda: WITHOUT_ONE_OF_OURS[client] in broker.log, seconds_max=10)


def test_kafka_python(broker: BrokerProcess, certificates: Certificates) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    settings = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": certificates.ca,
        "ssl_certfile": certificates.pem("client"),
        "ssl_keyfile": certificates.pem("client"),
    }
    producer = KafkaProducer(**settings)
    for i in range(COUNT):
        producer.send("kafka-python", f"{i}".encode())
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", group_id="kafka-python", consumer_timeout_ms=30_000, **settings
    )
    got = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    assert got == [f"{i}".encode() for i in range(COUNT)]


async def test_aiokafka(broker: BrokerProcess, certificates: Certificates) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.pem("client"))
    settings = {"bootstrap_servers": broker.bootstrap, "security_protocol": "SSL", "ssl_context": context}
    async with AIOKafkaProducer(**settings) as producer:
        for i in range(COUNT):
            await producer.send("aiokafka", f"{i}".encode())
        await producer.flush()
    async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", group_id="aiokafka", **settings) as consumer:
        got = [(await consumer.getone()).value for _ in range(COUNT)]
    assert got == [f"{i}".encode() for i in range(COUNT)]


def test_kcat(broker: BrokerProcess, certificates: Certificates) -> None:
    program = shutil.which("kcat") or shutil.which("kafkacat")
    assert program, "kcat is not installed"
    flags = [word for name, value in certificates.librdkafka().items() for word in ("-X", f"{name}={value}")]
    lines = b"".join(f"{i}\n".encode() for i in range(COUNT))
    kcat = [program, "-b", broker.bootstrap, *flags]
    subprocess.run([*kcat, "-P", "-t", "kcat"], input=lines, check=True, timeout=60)
    read = subprocess.run([*kcat, "-C", "-t", "kcat", "-e", "-q"], capture_output=True, check=True, timeout=60)
    assert read.stdout == lines


def test_java(broker: BrokerProcess, certificates: Certificates, tmp_path: Path) -> None:
    """Kafka's own tools, with key stores of both kinds, in one JVM."""
    commands = [each for kind in ("PEM", "PKCS12") for each in _java_commands(broker, certificates, tmp_path, kind)]
    runs = run_tools(*commands)
    for run in runs:
        assert "xception" not in str(run), run
    for produced, consumed in (runs[1:3], runs[5:7]):
        assert "2000 records sent" in str(produced)
        assert ", 2000, " in str(consumed)


def _java_commands(
    broker: BrokerProcess, certificates: Certificates, tmp_path: Path, kind: str
) -> list[tuple[str, ...]]:
    file = str(certificates.java_file(tmp_path / f"{kind}.properties", kind=kind))
    topic = ("--topic", f"java-{kind.lower()}")
    common = ("--bootstrap-server", broker.bootstrap, "--command-config", file)
    size = ("--record-size", "1000", "--throughput", "-1")
    tools = "org.apache.kafka.tools"
    return [
        (f"{tools}.TopicCommand", *common, "--create", *topic),
        (f"{tools}.ProducerPerformance", *common, *topic, "--num-records", "2000", *size),
        (f"{tools}.ConsumerPerformance", *common, *topic, "--num-records", "2000", "--timeout", "30000"),
        (f"{tools}.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap, "--config", file),
    ]


def test_a_certificate_is_renewed_under_load(broker: BrokerProcess, certificates: Certificates) -> None:
    """New connections see the new one; nobody who is connected notices, and nothing is lost."""
    settings = {"bootstrap.servers": broker.bootstrap, **certificates.librdkafka()}
    producer, stop, failures = Producer({**settings, "linger.ms": 1}), threading.Event(), []
    sent = 0

    def produce() -> None:
        nonlocal sent
        while not stop.is_set():
            producer.produce("renewed", f"{sent}".encode(), on_delivery=lambda e, _: e and failures.append(e))
            sent += 1
            producer.poll(0)
            time.sleep(0.001)

    loading = threading.Thread(target=produce)
    loading.start()
    try:
        for _ in range(3):
            before = _serial(broker, certificates)
            certificates.make("--node", "node")
            eventually(lambda before=before: _serial(broker, certificates) != before, seconds_max=20)
    finally:
        stop.set()
        loading.join()
    assert producer.flush(30) == 0
    assert not failures
    assert _consumed(settings, "renewed", sent) == [f"{i}".encode() for i in range(sent)]


def test_a_certificate_with_other_names_is_refused(broker: BrokerProcess, certificates: Certificates) -> None:
    before = _serial(broker, certificates)
    certificates.make("--node", "node=elsewhere")
    eventually(lambda: "ssl.allow.san.changes is false" in broker.log, seconds_max=20)
    assert _serial(broker, certificates) == before
    certificates.make("--node", "node")
    eventually(lambda: _serial(broker, certificates) != before, seconds_max=20)


def test_a_key_store_that_cannot_be_used_is_refused_by_alter_configs(
    broker: BrokerProcess, certificates: Certificates, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **certificates.librdkafka()})
    before = _serial(broker, certificates)

    def alter(location: str) -> None:
        entry = ConfigEntry(
            "listener.name.ssl.ssl.keystore.location", location, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    with pytest.raises(Exception, match="cannot be read"):
        alter("/nowhere.pem")
    other = tmp_path / "other.pem"
    shutil.copy(certificates.pem("node"), tmp_path / "old.pem")
    certificates.make("--node", "node")
    eventually(lambda: _serial(broker, certificates) != before, seconds_max=20)
    shutil.copy(tmp_path / "old.pem", other)
    alter(str(other))
    eventually(lambda: _serial(broker, certificates) == before, seconds_max=20)
    alter(certificates.pem("node"))
    eventually(lambda: _serial(broker, certificates) != before, seconds_max=20)


def test_readers_that_do_not_read_cost_no_memory_and_get_everything_in_the_end(
    broker: BrokerProcess, certificates: Certificates
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, **certificates.librdkafka()}
    producer = Producer({**settings, "linger.ms": 20})
    for _ in range(20):
        producer.produce("large", os.urandom(900_000))
        producer.poll(0)
    assert producer.flush(30) == 0
    readers = [TlsWire(broker.host, broker.port, certificates, receive_buffer=1 << 16) for _ in range(20)]
    topic_id = metadata(readers[0], "large").topics[0].topic_id
    before = broker.rss_bytes
    wanted = fetch_fields(topic_id, partition_to_fetch(partition_max_bytes=1 << 25), max_bytes=1 << 25)
    asked = [each.ask("Fetch", 17, **wanted) for each in readers]
    others = TlsWire(broker.host, broker.port, certificates)
    for _ in range(20):  # others are served meanwhile
        metadata(others, "large")
    assert broker.rss_bytes - before < 100 << 20, "their answers have 360 MB together"
    for each, number in zip(readers, asked, strict=True):
        [answer] = fetched(each.answer("Fetch", 17, correlation_id=number)).values()
        assert len(batches(answer)) == 20
        each.close()
    others.close()


def test_strangers_end_with_one_line_each_and_clients_notice_nothing(
    broker: BrokerProcess, certificates: Certificates
) -> None:
    silent = [socket.create_connection((broker.host, broker.port)) for _ in range(50)]
    halves = [socket.create_connection((broker.host, broker.port)) for _ in range(50)]
    for each in halves:
        each.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    with socket.create_connection((broker.host, broker.port)) as plain:
        plain.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")
        plain.settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert plain.recv(1) == b""
    eventually(lambda: "it does not speak TLS" in broker.log, seconds_max=10)
    settings = {"bootstrap.servers": broker.bootstrap, **certificates.librdkafka()}
    began = time.monotonic()
    assert AdminClient(settings).list_topics(timeout=30).brokers
    assert time.monotonic() - began < 10, "before the strangers' time is over"
    for each in (*silent, *halves):
        each.close()


def test_a_flood_of_handshakes_does_not_hold_up_who_is_connected(
    broker: BrokerProcess, certificates: Certificates
) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, **certificates.librdkafka(), "linger.ms": 0}
    producer, stop = Producer(settings), threading.Event()
    producer.produce("flood", b"first")
    assert producer.flush(30) == 0

    def flood() -> None:
        context = ssl.create_default_context(cafile=certificates.ca)
        while not stop.is_set():
            try:
                with socket.create_connection((broker.host, broker.port), 10) as sock:
                    context.wrap_socket(sock, server_hostname="127.0.0.1").close()  # without a certificate
            except OSError:
                pass

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        for i in range(50):
            producer.produce("flood", f"{i}".encode())
            assert producer.flush(30) == 0
    finally:
        stop.set()
        for each in threads:
            each.join()
    lines = broker.log.count("it shows no certificate")
    assert lines <= 100, "a flood of strangers does not flood the log"


def _consumed(settings: dict[str, str], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": f"{topic}-{time.time_ns()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        got += [each.value() for each in consumer.consume(1000, 1.0) if each.error() is None]
    consumer.close()
    return got


def _serial(broker: BrokerProcess, certificates: Certificates) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.pem("client"))
    with (
        socket.create_connection((broker.host, broker.port), 10) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
