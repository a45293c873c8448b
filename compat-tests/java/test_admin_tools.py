"""Kafka's other administration commands on a broker without security, quotas or client metrics: they stay calm."""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.java import ToolRun
from harness.java_programs import run_tools

TOOLS = "org.apache.kafka.tools"
CONFIGS = "kafka.admin.ConfigCommand"


def run(broker: BrokerProcess, *commands: tuple[str, str]) -> list[ToolRun]:
    return run_tools(*([main, "--bootstrap-server", broker.bootstrap, *words.split()] for main, words in commands))


def test_what_nobody_has_set_is_described_as_empty(broker: BrokerProcess) -> None:
    described = run(
        broker,
        (CONFIGS, "--describe --entity-type users"),
        (CONFIGS, "--describe --entity-type clients"),
        (CONFIGS, "--describe --entity-type ips"),
        (CONFIGS, "--describe --entity-type client-metrics"),
        (f"{TOOLS}.ClientMetricsCommand", "--list"),
        (CONFIGS, "--describe --entity-type users --entity-name nobody"),
    )
    for each in described:
        assert each.checked().stdout.strip() == ""


def test_settings_of_brokers_groups_and_topics_are_changed_and_described(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    group = f"--entity-type groups --entity-name {topic}"
    default, changed, back, of_group, group_shown, group_back, unknown = run(
        broker,
        (CONFIGS, "--alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000"),
        (CONFIGS, "--describe --entity-type brokers --entity-default"),
        (CONFIGS, "--alter --entity-type brokers --entity-default --delete-config message.max.bytes"),
        (CONFIGS, f"--alter {group} --add-config consumer.session.timeout.ms=50000"),
        (CONFIGS, f"--describe {group}"),
        (CONFIGS, f"--alter {group} --delete-config consumer.session.timeout.ms"),
        (CONFIGS, f"--alter --entity-type topics --entity-name {topic} --add-config no.such=1"),
    )
    assert default.checked().lines == ["Completed updating default config for brokers in the cluster."]
    line = "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000"
    assert [
        each for each in changed.checked().lines if each.startswith("  message.max.bytes=2000000 ") and line in each
    ]
    back.checked()
    assert of_group.checked().lines == [f"Completed updating config for group {topic}."]
    assert "consumer.session.timeout.ms=50000" in group_shown.checked().stdout
    group_back.checked()
    assert unknown.code == 1
    assert "InvalidConfigurationException" in unknown.stderr


def test_transactions_acls_elections_reassignments_and_directories(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic)
    produce_all(broker.bootstrap, topic, [b"x"] * 10, partition=0)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [0]}]}))
    reassign = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    hanging, acls, added, elected, verified, moving, newest, everywhere, status = run(
        broker,
        (f"{TOOLS}.TransactionsCommand", "find-hanging --broker-id 0"),
        (f"{TOOLS}.AclCommand", "--list"),
        (f"{TOOLS}.AclCommand", f"--add --allow-principal User:x --operation Read --topic {topic}"),
        (f"{TOOLS}.LeaderElectionCommand", "--election-type preferred --all-topic-partitions"),
        (reassign, f"--verify --reassignment-json-file {plan}"),
        (reassign, "--list"),
        (f"{TOOLS}.GetOffsetShell", f"--topic {topic} --time max-timestamp"),
        (f"{TOOLS}.LogDirsCommand", "--describe"),
        (f"{TOOLS}.MetadataQuorumCommand", "describe --status"),
    )
    assert "Topic" in hanging.checked().lines[0]  # the head of a table without lines
    for refused in (acls, added):
        assert "SecurityDisabledException" in refused.stdout + refused.stderr
    assert elected.code == 0
    assert f"Reassignment of partition {topic}-0 is completed." in verified.checked().lines
    assert moving.checked().lines == ["No partition reassignments found."]
    # The first record of the latest millisecond.
    assert re.fullmatch(rf"{topic}:0:\d\n", newest.checked().stdout)
    assert f'"partition":"{topic}-0"' in everywhere.checked().stdout
    assert "CurrentVoters:" in status.checked().stdout
