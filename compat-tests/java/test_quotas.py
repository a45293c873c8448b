"""Kafka's own ConfigCommand sets, shows and removes quotas; Java clients are told to wait and go on, with transactions
and in groups, too."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Message
from harness.broker_process import BrokerProcess
from harness.committed import committed_items
from harness.confluent_client import create_topic, produce_all
from harness.java import ToolRun
from harness.java_processes import JavaProcess
from harness.java_programs import run_tools
from harness.quotas import set_quotas, throttled_requests

CONFIGS = "kafka.admin.ConfigCommand"
COPIED = 800


def run(broker: BrokerProcess, *commands: str) -> list[ToolRun]:
    return run_tools(*([CONFIGS, "--bootstrap-server", broker.bootstrap, *words.split()] for words in commands))


def test_config_command_sets_shows_and_removes_quotas(broker: BrokerProcess, topic: str) -> None:
    user, pair = f"--entity-type users --entity-name {topic}", f"--entity-type users --entity-name {topic}"
    pair += " --entity-type clients --entity-default"
    address = "--entity-type ips --entity-name 10.9.8.7"
    of_user, of_pair, of_address, shown, shown_pair, shown_address, bad, unknown, gone, gone_pair, gone_ip, empty = run(
        broker,
        f"--alter {user} --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
        f"--alter {pair} --add-config request_percentage=12.5",
        f"--alter {address} --add-config connection_creation_rate=9",
        f"--describe {user}",
        f"--describe {pair}",
        f"--describe {address}",
        f"--alter {user} --add-config producer_byte_rate=-7",
        f"--alter {user} --add-config no_such_quota=7",
        f"--alter {user} --delete-config producer_byte_rate,consumer_byte_rate",
        f"--alter {pair} --delete-config request_percentage",
        f"--alter {address} --delete-config connection_creation_rate",
        f"--describe {user}",
    )
    for each in (of_user, of_pair, of_address, gone, gone_pair, gone_ip):
        each.checked()
    assert f"Quota configs for user-principal '{topic}' are" in shown.checked().stdout
    assert "producer_byte_rate=1024.0" in shown.stdout
    assert "consumer_byte_rate=2048.0" in shown.stdout
    assert "request_percentage=12.5" in shown_pair.checked().stdout
    assert "connection_creation_rate=9.0" in shown_address.checked().stdout
    assert bad.code != 0
    assert unknown.code != 0
    assert "producer_byte_rate" not in empty.checked().stdout


def test_a_java_producer_is_throttled_and_finishes(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    client = f"--entity-type clients --entity-name {topic}"
    perf = "org.apache.kafka.tools.ProducerPerformance"
    records = f"--topic {topic} --num-records 3000 --record-size 1000 --throughput -1 --print-metrics"
    properties = f"bootstrap.servers={broker.bootstrap} client.id={topic} enable.idempotence=true"
    bootstrap = ["--bootstrap-server", broker.bootstrap]
    alter = f"--alter {client}"
    set_, sent, removed = run_tools(
        [CONFIGS, *bootstrap, *f"{alter} --add-config producer_byte_rate=500000".split()],
        [perf, *records.split(), "--producer-props", *properties.split()],
        [CONFIGS, *bootstrap, *f"{alter} --delete-config producer_byte_rate".split()],
    )
    set_.checked()
    removed.checked()
    lines = sent.checked().lines
    assert any(line.startswith("3000 records sent") for line in lines)
    (throttled,) = (line for line in lines if line.startswith("producer-metrics:produce-throttle-time-max"))
    assert float(throttled.rsplit(":", 1)[1]) > 0


def test_a_java_transactional_copy_goes_on_under_quotas_of_bytes_and_time(
    broker: BrokerProcess, topic: str, tmp_path: Path, is_control: bool
) -> None:
    """In one life and without an abort: no producer is fenced, no member leaves its group."""
    source, target = f"{topic}-in", f"{topic}-out"
    for each in (source, target):
        create_topic(broker.bootstrap, each)
    produce_all(broker.bootstrap, source, [b"%06d" % number + b"x" * 250 for number in range(COPIED)])
    writer, reader = f"producer-{topic}", f"consumer-{source}-group-1"  # as kafka-clients call themselves
    set_quotas(broker.bootstrap, writer, producer_byte_rate=100_000, request_percentage=1)
    set_quotas(broker.bootstrap, reader, request_percentage=0.5)

    def number(message: Message) -> int:
        value = message.value()
        assert value is not None
        return int(value[:6])

    how = (broker.bootstrap, source, target, topic, "consumer")
    copy = JavaProcess("ConsumeTransformProduce", *how, directory=tmp_path)
    try:
        with committed_items(broker.bootstrap, target, partitions=1, item=number) as committed:
            committed.wait_for(COPIED, seconds_max=60)
            throttled = {} if is_control else throttled_requests(broker.bootstrap)
            copy.stop()
            committed.assert_each_once(COPIED)
    finally:
        copy.stop()
        set_quotas(broker.bootstrap, writer, producer_byte_rate=None, request_percentage=None)
        set_quotas(broker.bootstrap, reader, request_percentage=None)
    [stopped] = (line for line in copy.said if line.startswith("STOPPED"))
    assert "aborted=0 lives=1" in stopped, copy.log
    assert is_control or min(throttled[writer], throttled[reader]) > 0
