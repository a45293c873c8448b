import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tidemark.broker.config import KEYS, BrokerConfig, ConfigError, load_config
from tidemark.broker.config.files import parse_properties

SHIPPED = Path(__file__).parents[3] / "config" / "single.yaml"

# The settings that Kafka's own server.properties for one combined node carries.
STOCK_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/var/lib/kafka
num.partitions=3
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
"""


def write(directory: Path, text: str, *, name: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_the_shipped_file_says_the_defaults() -> None:
    shipped, built_in = load_config(SHIPPED), load_config()
    assert shipped.explicit
    for field in fields(BrokerConfig):
        if field.name not in ("explicit", "http_listeners"):  # which `make run` has, and nothing else unasked
            assert getattr(shipped, field.name) == getattr(built_in, field.name), field.name


def test_every_default_passes_its_own_check() -> None:
    for key in KEYS.values():
        text = key.format(key.default)
        if text is not None:
            assert key.parse(text) == key.default


def test_yaml_values_take_every_plain_form(tmp_path: Path) -> None:
    text = (
        "node.id: 7\nlog.dirs: [a, b]\ndelete.topic.enable: no\nlog.cleaner.min.cleanable.ratio: 0.25\nbroker.rack:\n"
    )
    config = load_config(write(tmp_path, text, name="node.yaml"))
    assert (config.node_id, config.log_dirs, config.delete_topic_enable) == (7, ("a", "b"), False)
    assert config.log_cleaner_min_cleanable_ratio == 0.25
    assert config.broker_rack is None
    assert set(config.explicit) == {
        "node.id",
        "log.dirs",
        "delete.topic.enable",
        "log.cleaner.min.cleanable.ratio",
    }


def test_an_empty_yaml_file_means_the_defaults(tmp_path: Path) -> None:
    empty = load_config(write(tmp_path, "# nothing\n", name="empty.yaml"))
    assert all(getattr(empty, each.name) == getattr(load_config(), each.name) for each in fields(BrokerConfig))


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "num.partitions: 2\nnode.id: 3\n", name="node.yml")
    config = load_config(path, ["num.partitions = 5", "broker.rack=a=b"])
    assert (config.num_partitions, config.node_id, config.broker_rack) == (5, 3, "a=b")


def test_overrides_may_be_a_mapping_of_plain_values() -> None:
    config = load_config(overrides={"num.partitions": 5, "delete.topic.enable": False, "log.dirs": Path("x")})
    assert (config.num_partitions, config.delete_topic_enable, config.log_dirs) == (5, False, ("x",))
    assert config.explicit == {"num.partitions": "5", "delete.topic.enable": "false", "log.dirs": "x"}


def test_kafkas_own_properties_file_works_with_a_warning(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, STOCK_PROPERTIES, name="server.properties"))
    assert config.node_id == 1
    assert [str(listener) for listener in config.parsed_listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.parsed_advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    warning, exposure = config.warnings
    assert "PLAINTEXT://:9092" in exposure
    assert "num.io.threads" in warning
    assert "transaction.state.log.min.isr" not in warning
    assert "log.dirs" not in warning


def test_a_file_without_an_ending_is_told_by_its_contents(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "# c\nnum.partitions=4\nnum.io.threads=1\n", name="a")).num_partitions == 4
    assert load_config(write(tmp_path, "# c\nnum.partitions: 4\n", name="b")).num_partitions == 4


@pytest.mark.parametrize("name", ["node.yaml", "node.properties"])
def test_a_name_that_nobody_knows_is_an_error_with_a_guess(tmp_path: Path, name: str) -> None:
    separator = "=" if name.endswith("properties") else ": "
    with pytest.raises(ConfigError, match=r"num\.partition: .*did you mean num\.partitions\?") as caught:
        load_config(write(tmp_path, f"num.partition{separator}3\n", name=name))
    assert caught.value.key == "num.partition"


def test_a_setting_of_kafkas_alone_is_an_error_outside_a_properties_file() -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.threads: Kafka has this setting"):
        load_config(overrides=["num.io.threads=8"])


def test_a_topic_setting_on_the_broker_points_to_the_right_name() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        load_config(overrides=["segment.bytes=2000000"])


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("num.partitions=0", "num.partitions: '0' is not allowed; it must be a whole number of at least 1."),
        ("num.partitions=two", "'two' is not allowed"),
        ("num.partitions=1_000", "'1_000' is not allowed"),
        ("num.partitions=2147483648", "whole number"),
        ("log.retention.ms=9223372036854775808", "whole number"),
        ("delete.topic.enable=yes", "it must be true or false"),
        ("log.cleaner.min.cleanable.ratio=1.5", "from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio=nan", "'nan' is not allowed"),
        ("compression.type=brotli", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy=delete,keep", "out of compact, delete"),
        ("process.roles=controller", "must include broker"),
        ("log.dirs=", "must name at least one"),
        ("log.dirs=a,,b", "none may be empty"),
        ("max.connections.per.ip.overrides=10.0.0.1", "must be address:count"),
        ("listeners", "it must be key=value"),
        ("=3", "it must be key=value"),
    ],
)
def test_a_bad_value_is_an_error_that_says_what_is_allowed(setting: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[setting])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML at line"),
        ("- a\n- b\n", "key: value lines"),
        ("just words", "key: value lines"),
        ("node.id: 1\nnode.id: 2\n", "node.id comes more than once"),
        ("log: {dirs: x}\n", "plain value"),
    ],
)
def test_a_yaml_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text, name="bad.yaml"))
    assert says in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: .*No such file"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(path)


def test_older_names_stand_in_for_newer_ones() -> None:
    config = load_config(overrides=["broker.id=4", "log.dir=/old"])
    assert (config.node_id, config.broker_id, config.log_dirs) == (4, 4, ("/old",))
    both = load_config(overrides=["broker.id=4", "node.id=5", "log.dir=/old", "log.dirs=/new"])
    assert (both.node_id, both.broker_id, both.log_dirs) == (5, 5, ("/new",))


def test_properties_follow_javas_rules() -> None:
    text = "! note\n  a = 1 \nb:2\nc 3\nd=x\\\n   y\ne\\ f=\\u0041\\tz\ng\na=4\nh=C:\\\\dir\r\ni = = b"
    expected = {"a": "4", "b": "2", "c": "3", "d": "xy", "e f": "A\tz", "g": "", "h": "C:\\dir", "i": "= b"}
    assert parse_properties(text) == expected


def test_dynamic_changes_leave_what_was_set_at_the_start() -> None:
    started = load_config(overrides=["log.segment.bytes=2000000"])
    changed = started.with_values({"log.segment.bytes": "3000000", "max.connections": "7"})
    assert (changed.log_segment_bytes, changed.max_connections) == (3_000_000, 7)
    assert started.log_segment_bytes == 2_000_000
    assert changed.explicit == {"log.segment.bytes": "2000000"}


def test_a_setting_that_needs_a_restart_cannot_change_meanwhile() -> None:
    with pytest.raises(ConfigError, match=r"node\.id: it cannot be changed while the broker runs"):
        load_config().with_values({"node.id": "3"})


def test_limits_per_address_are_read() -> None:
    config = load_config(overrides=["max.connections.per.ip.overrides=127.0.0.1:5, host.example:0,[::1]:9"])
    assert config.parsed_max_connections_per_ip_overrides == {"127.0.0.1": 5, "host.example": 0, "::1": 9}


def test_importing_configuration_loads_neither_yaml_nor_the_broker() -> None:
    code = "import sys, tidemark.broker.config; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "yaml" not in loaded
    ours = [name for name in loaded if name.startswith("tidemark.broker.")]
    assert ours
    assert all(name.startswith("tidemark.broker.config") for name in ours)


def test_origins_are_those_that_browsers_tell() -> None:
    key = KEYS["http.cors.allowed.origins"]
    assert key.parse("https://app.example, http://localhost:3000") == ("https://app.example", "http://localhost:3000")
    assert key.parse("*") == ("*",)
    for wrong in ("app.example", "https://app.example/", "https://ann@app.example", "https://app.example, x"):
        with pytest.raises(ConfigError, match=re.escape("such as https://app.example:8443")):
            key.parse(wrong)
