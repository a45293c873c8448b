"""Kafka's own ConfigCommand sets, shows and removes quotas; a Java producer is told to wait and goes on."""

from __future__ import annotations

from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic
from harness.java import ToolRun
from harness.java_programs import run_tools

CONFIGS = "kafka.admin.ConfigCommand"


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
