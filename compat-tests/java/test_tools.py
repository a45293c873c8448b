"""Apache Kafka's command line tools, and the form of what they print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, produce_all
from harness.java import ToolRun, run_tool

TOOLS = "org.apache.kafka.tools"
Tool = Callable[..., ToolRun]


@pytest.fixture
def tool(broker: BrokerProcess) -> Tool:
    def run(main: str, *arguments: str, stdin: str | None = None) -> ToolRun:
        return run_tool(main, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)

    return run


def test_topic_command_and_config_command(tool: Tool, topic: str) -> None:
    """One topic's life, from creation to deletion, through the tools alone."""
    topics, configs = f"{TOOLS}.TopicCommand", "kafka.admin.ConfigCommand"
    created = tool(topics, "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=100000")
    assert created.checked().lines == [f"Created topic {topic}."]

    described = tool(topics, "--describe", "--topic", topic).checked().lines
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 1\t"
        r"Configs: (min\.insync\.replicas=1,)?retention\.ms=100000",
        described[0],
    )
    assert described[1:] == [
        f"\tTopic: {topic}\tPartition: {index}\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr: "
        for index in range(3)
    ]

    tool(topics, "--alter", "--topic", topic, "--partitions", "4").checked()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    change = ("--add-config", "segment.bytes=2000000", "--delete-config", "retention.ms")
    assert tool(configs, "--alter", *entity, *change).checked().lines == [
        f"Completed updating config for topic {topic}."
    ]
    assert tool(configs, "--describe", *entity).checked().lines == [
        f"Dynamic configs for topic {topic} are:",
        "  segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000, "
        "DEFAULT_CONFIG:log.segment.bytes=1073741824}",
    ]
    listed = tool(topics, "--list").checked().lines
    assert topic in listed
    tool(topics, "--delete", "--topic", topic).checked()
    missing = tool(topics, "--describe", "--topic", topic)
    assert missing.code == 1
    assert f"Topic '{topic}' does not exist as expected" in missing.stdout + missing.stderr


CONFIG_LINE = re.compile(r"  [a-z][\w.]*=.* sensitive=(true|false) synonyms=\{.*\}")
# What ConfigCommand prints for a topic nobody configured: name, value, and the broker key behind it.
TOPIC_DEFAULTS = [
    "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}",
    "  compression.type=producer sensitive=false synonyms={DEFAULT_CONFIG:compression.type=producer}",
    "  index.interval.bytes=4096 sensitive=false synonyms={DEFAULT_CONFIG:log.index.interval.bytes=4096}",
    "  max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}",
    "  message.timestamp.type=CreateTime sensitive=false "
    "synonyms={DEFAULT_CONFIG:log.message.timestamp.type=CreateTime}",
    "  retention.bytes=-1 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.bytes=-1}",
    "  segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}",
    "  segment.index.bytes=10485760 sensitive=false synonyms={DEFAULT_CONFIG:log.index.size.max.bytes=10485760}",
    # These take their default from another unit's key, so nothing is listed behind them.
    "  retention.ms=604800000 sensitive=false synonyms={}",
    "  segment.ms=604800000 sensitive=false synonyms={}",
    "  segment.jitter.ms=0 sensitive=false synonyms={}",
]


def test_config_command_describes_everything_as_kafka_does(tool: Tool, topic: str, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, topic)
    everything = ("kafka.admin.ConfigCommand", "--describe", "--all", "--entity-type")
    first, *lines = tool(*everything, "topics", "--entity-name", topic).checked().lines
    assert first == f"All configs for topic {topic} are:"
    assert [line for line in lines if not CONFIG_LINE.fullmatch(line)] == []
    assert [line for line in TOPIC_DEFAULTS if line not in lines] == []
    first, *lines = tool(*everything, "brokers", "--entity-name", "0").checked().lines
    assert first == "All configs for broker 0 are:"
    assert [line for line in lines if not CONFIG_LINE.fullmatch(line)] == []
    # What follows the first synonym is the default, which Apache Kafka does not have for this key.
    directories = f"  log.dirs={broker.data} sensitive=false synonyms={{STATIC_BROKER_CONFIG:log.dirs={broker.data}"
    assert [line for line in lines if line.startswith(directories)]


def test_console_producer_and_consumer(tool: Tool, topic: str, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, topic)
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    sent = "".join(f"k{number}:v{number}\n" for number in range(100))
    tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, *properties, stdin=sent).checked()
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    read = tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "40",
        "--max-messages", "3", *shown,
    ).checked()  # fmt: skip
    assert read.lines == [f"Offset:{number}\tk{number}\tv{number}" for number in (40, 41, 42)]


def test_offsets_log_dirs_and_delete_records(tool: Tool, topic: str, broker: BrokerProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    produce_all(broker.bootstrap, topic, [b"%d" % number for number in range(100)], partition=1)
    offsets = tool(f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", "latest").checked()
    assert offsets.lines == [f"{topic}:0:0", f"{topic}:1:100"]

    directories = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic).checked().lines
    assert directories[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 0",
    ]
    (node,) = json.loads(directories[2])["brokers"]
    (directory,) = node["logDirs"]
    assert (node["broker"], directory["error"], directory["logDir"]) == (0, None, str(broker.data))
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert sizes[f"{topic}-0"] == 0
    assert sizes[f"{topic}-1"] > 100

    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 1, "offset": 40}]}))
    deleted = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(plan)).checked()
    assert f"partition: {topic}-1\tlow_watermark: 40" in deleted.stdout
    offsets = tool(f"{TOOLS}.GetOffsetShell", "--topic-partitions", f"{topic}:1", "--time", "earliest").checked()
    assert offsets.lines == [f"{topic}:1:40"]


def test_broker_api_versions_and_cluster_id(tool: Tool, broker: BrokerProcess) -> None:
    lines = tool(f"{TOOLS}.BrokerApiVersionsCommand").checked().lines
    assert lines[0] == f"{broker.bootstrap} (id: 0 rack: null isFenced: false) -> ("
    for usable in (
        "\tProduce(0): 0 to 13 [usable: 13],",
        "\tFetch(1): 4 to 18 [usable: 18],",
        "\tMetadata(3): 0 to 13 [usable: 13],",
        "\tCreateTopics(19): 2 to 7 [usable: 7],",
    ):
        assert usable in lines
    cluster = run_tool(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap).checked()
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", cluster.stdout)


def test_producer_performance(tool: Tool, topic: str, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    run = tool(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "50000", "--record-size", "100",
        "--throughput", "-1",
    ).checked()  # fmt: skip
    assert re.match(r"50000 records sent, [\d.]+ records/sec", run.lines[-1])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_performance(tool: Tool, topic: str, broker: BrokerProcess, protocol: str) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    for partition in range(3):
        produce_all(broker.bootstrap, topic, [b"x" * 100] * 10_000, partition=partition)
    run = tool(
        f"{TOOLS}.ConsumerPerformance", "--topic", topic, "--group", topic, "--num-records", "30000",
        "--command-property", f"group.protocol={protocol}", "--timeout", "60000", "--hide-header",
    ).checked()  # fmt: skip
    figures = run.lines[-1].split(", ")
    assert len(figures) == 10, run.lines
    assert figures[4] == "30000"  # data.consumed.in.nMsg
    assert float(figures[2]) == pytest.approx(30_000 * 100 / 2**20, abs=0.001)  # data.consumed.in.MB
    described = tool(f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--describe", "--group", topic).checked().stdout
    assert len(re.findall(rf"{topic}\s+{topic}\s+\d\s+10000\s+10000\s+0\s", described)) == 3


def dump(files: Sequence[Path], *options: str) -> str:
    run = run_tool(f"{TOOLS}.DumpLogSegments", *options, "--files", ",".join(map(str, files))).checked()
    return run.stdout


COMPLAINTS = re.compile(
    r"corrupt|mismatch|Non-consecutive|not find|out of order|Invalid|found timestamp|isvalid: false|error",
    re.IGNORECASE,
)


def test_dump_log_segments_reads_the_live_directory(topic: str, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, topic, segment_bytes="1048576", index_interval_bytes="512")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        values = [b"%06d " % number + b"x" * 500 for number in range(2000)]
        produce_all(broker.bootstrap, topic, values, compression_type=codec, enable_idempotence=True, batch_size=20_000)
    directory = broker.data / f"{topic}-0"
    segments, indexes, times = (sorted(directory.glob(f"*.{kind}")) for kind in ("log", "index", "timeindex"))
    assert len(segments) > 1
    assert len(segments) == len(indexes) == len(times)

    logs = dump(segments, "--deep-iteration", "--print-data-log")
    assert COMPLAINTS.findall(logs) == []
    assert len(re.findall(r"^\| offset: ", logs, re.MULTILINE)) == 10_000
    checked = dump([*indexes, *times])
    assert COMPLAINTS.findall(checked) == []
    assert re.search(r"offset: \d+ position: [1-9]", checked)
    assert re.search(r"timestamp: \d{13} offset: \d+", checked)
    # The active segment's index is preallocated and not yet trimmed, so only those of closed segments are checked.
    sane = dump([*indexes[:-1], *times[:-1]], "--index-sanity-check")
    assert sane.count("passed sanity check") == 2 * (len(segments) - 1)
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots
    assert "producerId: " in dump(snapshots)
