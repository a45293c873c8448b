"""The command line against a broker process."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

READY = re.compile(r"Tidemark is ready: (?P<address>\S+) \(node 0, data in (?P<data>.+)\)\. Stop with Ctrl-C\.")
Run = Callable[..., subprocess.CompletedProcess[str]]


def start_broker(directory: Path, *settings: str) -> tuple[subprocess.Popen[str], str]:
    """A broker process through `tidemark start`, and its address once it says that it is ready."""
    options = [f"--set={s}" for s in ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}", *settings)]
    command = [sys.executable, "-m", "tidemark.cli.main", "start", *options]
    with tempfile.TemporaryFile("w+") as log:  # a file, because nobody reads a pipe while the broker runs
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.match(line)
        if ready is None:
            process.kill()
            process.communicate()
            log.seek(0)
            pytest.fail(f"not ready: {line!r}\n{log.read()}")
    return process, ready["address"]


def stop_broker(process: subprocess.Popen[str], *, by: signal.Signals = signal.SIGINT) -> int:
    process.send_signal(by)
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    return process.returncode


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, address = start_broker(tmp_path_factory.mktemp("data"))
    yield address
    assert stop_broker(process) == 0


@pytest.fixture
def tidemark(broker: str) -> Run:
    def run(*arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tidemark.cli.main", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "TIDEMARK_BOOTSTRAP": broker},
        )
        assert not check or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def test_a_topic_lives_from_create_to_delete(tidemark: Run) -> None:
    tidemark("topics", "create", "life", "-p", "3", "-c", "retention.ms=60000")
    assert "life" in tidemark("topics", "list").stdout.split()
    listed = json.loads(tidemark("topics", "list", "--json").stdout)
    assert {"name": "life", "partitions": 3, "replication_factor": 1} in listed

    [described] = json.loads(tidemark("topics", "describe", "life", "--json").stdout)
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0] | {"partition": 0} == {
        "partition": 0,
        "leader": 0,
        "replicas": [0],
        "isr": [0],
        "start_offset": 0,
        "end_offset": 0,
    }
    assert described["configs"] == {"retention.ms": {"value": "60000", "source": "DYNAMIC_TOPIC_CONFIG"}}

    tidemark("topics", "alter", "life", "-p", "4", "-c", "segment.ms=5000", "--delete-config", "retention.ms")
    text = tidemark("topics", "describe", "life").stdout
    assert "segment.ms = 5000" in text
    assert "retention.ms" not in text
    shown = re.findall(r"^Partition (\d): Leader=0, ISR=\[0\], Replicas=\[0\], Start=0, End=0$", text, re.MULTILINE)
    assert shown == ["0", "1", "2", "3"]

    tidemark("topics", "delete", "life")
    assert "life" not in tidemark("topics", "list").stdout.split()


def test_creating_twice_fails_unless_that_is_fine(tidemark: Run) -> None:
    tidemark("topics", "create", "twice")
    again = tidemark("topics", "create", "twice", check=False)
    assert again.returncode == 1
    assert "TOPIC_ALREADY_EXISTS" in again.stderr
    tidemark("topics", "create", "twice", "--if-not-exists")


def test_validating_creates_nothing(tidemark: Run) -> None:
    tidemark("topics", "create", "maybe", "--validate-only")
    assert "maybe" not in tidemark("topics", "list").stdout.split()
    bad = tidemark("topics", "create", "maybe", "--validate-only", "-c", "retention.ms=never", check=False)
    assert bad.returncode == 1
    assert "retention.ms" in bad.stderr


@pytest.mark.parametrize(
    "line",
    [
        ("topics", "describe", "missing"),
        ("topics", "delete", "missing"),
        ("topics", "alter", "missing", "-p", "2"),
        ("topics", "alter", "missing", "-c", "retention.ms=1"),
        ("consume", "missing", "-e"),
    ],
)
def test_a_missing_topic_is_exit_code_4(tidemark: Run, line: tuple[str, ...]) -> None:
    failed = tidemark(*line, check=False)
    assert (failed.returncode, failed.stdout) == (4, "")
    assert "missing" in failed.stderr


def test_deleting_a_missing_topic_can_be_fine(tidemark: Run) -> None:
    tidemark("topics", "delete", "missing", "--if-exists")


def test_lines_come_back_as_they_went(tidemark: Run) -> None:
    tidemark("produce", "lines", stdin="one\n\nthree\n")
    assert tidemark("consume", "lines", "--from-beginning", "-e").stdout == "one\n\nthree\n"


def test_keys_headers_and_tombstones_come_back(tidemark: Run) -> None:
    tidemark("produce", "parts", "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", stdin="k1:v1\nk2:\nplain\n")
    lines = tidemark("consume", "parts", "-o", "beginning", "-e", "--json").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [
        (0, "k1", "v1"),
        (1, "k2", None),
        (2, None, "plain"),
    ]
    assert records[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    shown = tidemark("consume", "parts", "-o", "beginning", "-e", "-K", "=", "--null", "NULL").stdout
    assert shown == "k1=v1\nk2=NULL\nNULL=plain\n"


@pytest.mark.parametrize(
    ("codec", "acks"),
    [("none", "0"), ("none", "1"), ("none", "all"), ("gzip", "1"), ("snappy", "all"), ("lz4", "0"), ("zstd", "all")],
)
def test_every_codec_and_every_acks(tidemark: Run, codec: str, acks: str) -> None:
    topic = f"codec-{codec}-{acks}"
    text = "".join(f"line {n} {'x' * 50}\n" for n in range(200))
    tidemark("produce", topic, "-z", codec, "-a", acks, stdin=text)
    assert tidemark("consume", topic, "--from-beginning", "-n", "200").stdout == text


def test_json_lines_copy_a_topic(tidemark: Run) -> None:
    lines = [
        {"key": "k", "value": "v", "headers": {"h": "x"}, "timestamp": 1_700_000_000_000},
        {"key_base64": "/w==", "value": {"a": 1}},
        {"value": None, "key": "gone"},
    ]
    tidemark("produce", "from", "--json", stdin="\n".join(map(json.dumps, lines)))
    first = tidemark("consume", "from", "--from-beginning", "-e", "--json").stdout
    tidemark("produce", "to", "--json", stdin=first)
    second = tidemark("consume", "to", "--from-beginning", "-e", "--json").stdout
    assert second == first.replace('"topic": "from"', '"topic": "to"')
    assert json.loads(second.splitlines()[0])["timestamp"] == 1_700_000_000_000


def test_a_bad_json_line_is_named_and_what_came_before_it_is_written(tidemark: Run) -> None:
    failed = tidemark("produce", "half", "--json", stdin='{"value": "ok"}\nnot json\n', check=False)
    assert failed.returncode == 1
    assert "Line 2" in failed.stderr
    assert tidemark("consume", "half", "--from-beginning", "-e").stdout == "ok\n"


def test_offsets_choose_where_reading_starts(tidemark: Run) -> None:
    began = time.time_ns() // 1_000_000 - 60_000  # not so long ago that retention would take the records
    lines = [json.dumps({"value": str(n), "timestamp": began + n}) for n in range(10)]
    tidemark("produce", "places", "--json", stdin="\n".join(lines))

    def read(*options: str) -> str:
        return "".join(tidemark("consume", "places", "-e", *options).stdout.split())

    assert read("-o", "7") == "789"
    assert read("-o", "-2") == "89"
    assert read("-o", "-200") == "0123456789"
    assert read("-o", f"s@{began + 6}") == "6789"
    assert read("-o", "s@9000000000000") == ""
    assert read("-o", "end") == ""
    assert read("-o", "beginning", "-n", "3") == "012"
    past = tidemark("consume", "places", "-e", "-o", "11", check=False)
    assert past.returncode == 1
    assert "not in partition 0 of places" in past.stderr


def test_partitions_are_written_and_read_alone(tidemark: Run) -> None:
    tidemark("topics", "create", "several", "-p", "3")
    for partition in "012":
        tidemark("produce", "several", "-p", partition, stdin=f"in {partition}\n")
    assert tidemark("consume", "several", "--from-beginning", "-e", "-p", "1").stdout == "in 1\n"
    everything = tidemark("consume", "several", "--from-beginning", "-e").stdout.splitlines()
    assert sorted(everything) == ["in 0", "in 1", "in 2"]
    for line in (["consume", "several", "-p", "3"], ["produce", "several", "-p", "3"]):
        assert tidemark(*line, check=False).returncode == 4


def test_a_record_that_is_too_large_is_an_error_with_a_reason(tidemark: Run) -> None:
    tidemark("topics", "create", "small", "-c", "max.message.bytes=100")
    failed = tidemark("produce", "small", stdin="x" * 1000 + "\n", check=False)
    assert failed.returncode == 1
    assert "1 of 1 records were not written to small" in failed.stderr


def test_consume_in_a_group_goes_on_where_the_group_was(tidemark: Run) -> None:
    tidemark("topics", "create", "shared", "-p", "2")
    tidemark("produce", "shared", stdin="a\nb\nc\n")
    first = tidemark("consume", "shared", "--group", "readers", "--from-beginning", "-n", "2").stdout.split()
    rest = tidemark("consume", "shared", "--group", "readers", "--from-beginning", "-e").stdout.split()
    assert sorted(first + rest) == ["a", "b", "c"]
    assert tidemark("consume", "shared", "--group", "readers", "--from-beginning", "-e").stdout == ""
    assert "readers" in tidemark("groups", "list").stdout
    refused = tidemark("consume", "shared", "--group", "readers", "-p", "0", check=False)
    assert refused.returncode == 2
    assert "--group" in refused.stderr


def test_consume_follows_new_records_and_stops_by_ctrl_c(tidemark: Run, broker: str) -> None:
    tidemark("topics", "create", "follow")
    command = [sys.executable, "-m", "tidemark.cli.main", "consume", "follow", "-o", "beginning", "-b", broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        for text in ("first", "second"):
            tidemark("produce", "follow", stdin=f"{text}\n")
            assert follower.stdout.readline() == f"{text}\n"
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=30)
        assert (follower.returncode, err) == (130, "")


def test_without_auto_creation_producing_to_a_missing_topic_fails_soon(tmp_path: Path) -> None:
    process, address = start_broker(tmp_path / "data", "auto.create.topics.enable=false")
    try:
        command = [sys.executable, "-m", "tidemark.cli.main", "produce", "missing", "-b", address, "--timeout", "1"]
        failed = subprocess.run(command, input="x\n", capture_output=True, text=True, timeout=60)
        assert failed.returncode == 4
        assert "does not exist" in failed.stderr
    finally:
        stop_broker(process)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_records_outlive_a_clean_stop(tmp_path: Path, by: signal.Signals) -> None:
    tidemark = [sys.executable, "-m", "tidemark.cli.main"]
    process, address = start_broker(tmp_path / "data")
    subprocess.run(
        [*tidemark, "produce", "kept", "-b", address], input="still here\n", text=True, check=True, timeout=60
    )
    assert stop_broker(process, by=by) == 0
    process, address = start_broker(tmp_path / "data")
    consume = [*tidemark, "consume", "kept", "--from-beginning", "-e", "-b", address]
    read = subprocess.run(consume, capture_output=True, text=True, check=True, timeout=60)
    assert stop_broker(process) == 0
    assert read.stdout == "still here\n"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("num.partition=1", "did you mean num.partitions?"),
        ("num.partitions=none", "'none' is not allowed"),
        ("listeners=SSL://127.0.0.1:0", "a TLS listener needs a key store"),
    ],
)
def test_a_bad_setting_stops_the_start_with_a_sentence(tmp_path: Path, setting: str, says: str) -> None:
    command = [sys.executable, "-m", "tidemark.cli.main", "start", "--set", f"log.dirs={tmp_path}", "--set", setting]
    failed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 2
    assert says in failed.stderr
    assert "Traceback" not in failed.stderr
