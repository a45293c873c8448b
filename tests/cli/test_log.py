"""`tidemark log` on the files of a stopped broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemark.cli.main import main
from tidemark.failure import ExitCode
from tidemark.protocol.records import EndTransaction, Record, build_batch, build_end_transaction, read_header
from tidemark.storage import LogConfig, LogDirectory, swap
from tidemark.storage.files import REAL_FILES
from tidemark.storage.tools import compacting, find_partitions

T0 = 1_700_000_000_000
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with the partition `orders-0`: three segments, with an aborted transaction."""
    directory = LogDirectory.open(str(tmp_path / "data"), now_ms=lambda: T0)
    log = directory.open_log("orders", 0, config=LogConfig(segment_bytes=900, index_interval_bytes=100))
    for at in range(12):
        batch = build_batch(
            [Record(timestamp=T0 + at, key=b"k%d" % at, value=b"v%d" % at * 9, headers=[("h", b"\xff")])],
            compression=at % 5,
            producer_id=5 if at == 3 else -1,
            producer_epoch=0 if at == 3 else -1,
            base_sequence=0 if at == 3 else -1,
            transactional=at == 3,
        )
        log.append(batch, read_header(batch), leader_epoch=at // 6, now_ms=T0)
        if at == 3:
            marker = build_end_transaction(EndTransaction(5, 0, False, 1), timestamp=T0)
            log.append(marker, read_header(marker), leader_epoch=0, now_ms=T0)
    directory.close()
    return tmp_path / "data"


def logs(data: Path) -> list[Path]:
    return sorted((data / "orders-0").glob("*.log"))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_dump_prints_every_file_of_every_partition(data: Path, capsys: Captured) -> None:
    assert main(["log", "dump", str(data), "--records"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert f"# {data}/orders-0/00000000000000000000.log\n" in out
    assert 'key="k11" value="v11v11v11v11v11v11v11v11v11" headers=[h: "\\\\xff"]' in out
    assert "marker offset=4 marker=ABORT coordinator_epoch=1" in out
    assert "aborted version=0 producer_id=5 first_offset=3 last_offset=4" in out
    assert "epoch epoch=1 start_offset=7" in out
    for suffix in ("index", "timeindex", "snapshot"):
        assert f".{suffix}\n" in out


def test_dump_as_json_is_an_object_per_line(data: Path, capsys: Captured) -> None:
    assert main(["log", "dump", str(logs(data)[0]), "--records", "--json"]) == ExitCode.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["type"] == "batch"
    assert lines[0]["is_valid"] is True
    assert (lines[1]["offset"], lines[1]["key"], lines[1]["headers"]) == (
        0,
        "k0",
        [{"name": "h", "value_base64": "/w=="}],
    )
    assert {"none", "gzip", "snappy", "lz4", "zstd"} >= {
        each["compression"] for each in lines if each["type"] == "batch"
    }


def test_dump_shows_damage_and_what_follows_it(data: Path, capsys: Captured) -> None:
    flip(logs(data)[1], 10)  # the first batch's length
    assert main(["log", "dump", str(logs(data)[1])]) == ExitCode.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("damage position=0 reason=")
    assert lines[2].startswith("batch position=")


def test_verify_says_that_a_log_is_sound(data: Path, capsys: Captured) -> None:
    assert main(["log", "verify", str(data)]) == ExitCode.OK
    assert capsys.readouterr().out.endswith(": sound.\n")


def test_verify_names_file_and_position(data: Path, capsys: Captured) -> None:
    flip(logs(data)[1], 70)
    assert main(["log", "verify", str(data / "orders-0"), "--json"]) == ExitCode.FAILED
    (found,) = json.loads(capsys.readouterr().out)
    assert found["reason"] == "the CRC does not match"
    assert (found["file"], found["position"], found["can_be_rebuilt"]) == (str(logs(data)[1]), 0, False)


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
def test_repair_rebuilds_what_can_be_derived(data: Path, suffix: str, capsys: Captured) -> None:
    broken = sorted((data / "orders-0").glob(f"*.{suffix}"))[0]
    flip(broken, 5)
    assert main(["log", "verify", str(data)]) == ExitCode.FAILED
    assert main(["log", "repair", str(data)]) == ExitCode.OK
    assert main(["log", "verify", str(data)]) == ExitCode.OK
    assert "Nothing" not in capsys.readouterr().out


def test_repair_restores_the_epochs(data: Path) -> None:
    path = data / "orders-0" / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.write_bytes(b"0\n3\n0 0\n")
    assert main(["log", "repair", str(data)]) == ExitCode.OK
    assert path.read_bytes() == before


def test_repair_drops_no_record_unless_told_to(data: Path, capsys: Captured) -> None:
    contents = [path.read_bytes() for path in logs(data)]
    flip(logs(data)[1], 70)
    first = int(logs(data)[1].stem)
    assert main(["log", "repair", str(data)]) == ExitCode.FAILED
    assert "--truncate-at" in capsys.readouterr().out
    assert [path.stat().st_size for path in logs(data)] == [len(each) for each in contents]
    assert (data / ".kafka_cleanshutdown").exists()

    assert main(["log", "repair", str(data / "orders-0"), "--truncate-at", str(first)]) == ExitCode.OK
    assert main(["log", "verify", str(data)]) == ExitCode.OK
    assert logs(data)[0].read_bytes() == contents[0]
    assert not (data / ".kafka_cleanshutdown").exists(), "it does not have all that it had"
    reopened = LogDirectory.open(str(data), now_ms=lambda: T0)
    assert reopened.open_log("orders", 0, config=LogConfig()).end_offset == first
    reopened.close()


def test_after_a_truncation_what_comes_next_is_not_taken_for_clean(data: Path) -> None:
    first, checkpoint = int(logs(data)[1].stem), data / "cleaner-offset-checkpoint"
    checkpoint.write_text(f"0\n1\norders 0 {first + 2}\n")
    assert main(["log", "repair", str(data / "orders-0"), "--truncate-at", str(first)]) == ExitCode.OK
    assert checkpoint.read_text() == f"0\n1\norders 0 {first}\n"


def test_an_interrupted_swap_is_told_and_finished_and_nothing_given_up(data: Path, capsys: Captured) -> None:
    """Killed after the old segment was renamed, and before the new one was: that looks like a hole."""
    log = logs(data)[0]
    contents = log.read_bytes()
    log.rename(f"{log}.swap")
    assert main(["log", "verify", str(data)]) == ExitCode.FAILED
    assert f"{log}.swap, byte 0: a cleaning was interrupted here" in capsys.readouterr().out
    assert main(["log", "repair", str(data)]) == ExitCode.OK
    assert main(["log", "verify", str(data)]) == ExitCode.OK
    assert log.read_bytes() == contents


def test_truncation_drops_no_more_than_it_says(data: Path, capsys: Captured) -> None:
    flip(logs(data)[1], 10)
    sizes = [path.stat().st_size for path in logs(data)]
    offset = int(logs(data)[1].stem) + 2
    assert main(["log", "repair", str(data / "orders-0"), "--truncate-at", str(offset)]) == ExitCode.FAILED
    assert f"only --truncate-at {offset - 2} is possible" in capsys.readouterr().err
    assert [path.stat().st_size for path in logs(data)] == sizes


def test_repair_keeps_its_hands_off_a_running_broker(data: Path, capsys: Captured) -> None:
    directory = LogDirectory.open(str(data))
    try:
        assert main(["log", "repair", str(data)]) == ExitCode.FAILED
    finally:
        directory.close()
    assert "is locked" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["dump", "verify", "repair"])
def test_what_is_no_log_is_said_in_a_sentence(action: str, tmp_path: Path, capsys: Captured) -> None:
    assert main(["log", action, str(tmp_path / "nowhere")]) == ExitCode.NOT_FOUND
    assert main(["log", action, str(tmp_path)]) == ExitCode.NOT_FOUND
    assert capsys.readouterr().err.count("\n") == 2


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """`prices-0`: ten keys, written thirty times, one of them deleted at last, and closed cleanly."""
    directory = LogDirectory.open(str(tmp_path / "data"))
    log = directory.open_log("prices", 0, config=LogConfig(segment_bytes=1500, compact=True))
    for at in range(300):
        value = None if at == 209 else b"%d" % at * 5
        batch = build_batch([Record(timestamp=T0 + at, key=b"key%d" % (at % 10), value=value)], compression=at % 2)
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    directory.close()
    return tmp_path / "data"


def test_stats_counts_what_is_in_a_log(compacted: Path, capsys: Captured) -> None:
    assert main(["log", "stats", "prices", "--log-dir", str(compacted), "--json"]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["partition"], found["records"], found["keys"]) == ("prices", 0, 300, 10)
    assert (found["tombstones"], found["without_key"], found["producers"]) == (1, 0, 0)
    assert found["codecs"] == {"none": 150, "gzip": 150}
    assert (found["cleaned_up_to"], found["dirty_ratio"]) == (None, 1.0)
    assert found["batch_bytes_min"] <= found["batch_bytes_mean"] <= found["batch_bytes_max"]
    assert main(["log", "stats", str(compacted / "prices-0")]) == ExitCode.OK
    assert "records     300, of them 1 tombstones, 0 without a key" in capsys.readouterr().out


def test_stats_of_transactions(data: Path, capsys: Captured) -> None:
    assert main(["log", "stats", str(data), "--json"]) == ExitCode.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["producers"], found["markers"], found["transactional_batches"]) == (1, 1, 1)
    assert set(found["codecs"]) == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_stats_says_where_it_looked(data: Path, capsys: Captured) -> None:
    assert main(["log", "stats", "missing"]) == ExitCode.NOT_FOUND
    assert main(["log", "stats", "missing", "--log-dir", str(data)]) == ExitCode.NOT_FOUND
    assert "There is no log of missing in" in capsys.readouterr().err


def test_compact_leaves_alone_what_may_be_an_ordinary_topic_unless_it_is_named(
    compacted: Path, capsys: Captured
) -> None:
    before = {path.name: path.read_bytes() for path in (compacted / "prices-0").iterdir()}
    assert main(["log", "compact", str(compacted)]) == ExitCode.OK
    assert "prices-0: left alone, as it was never compacted" in capsys.readouterr().out
    assert main(["log", "compact", str(compacted), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == [{"topic": "prices", "partition": 0, "left_alone": True}]
    assert {path.name: path.read_bytes() for path in (compacted / "prices-0").iterdir()} == before
    assert main(["log", "compact", str(compacted / "prices-0")]) == ExitCode.OK
    assert "are left." in capsys.readouterr().out
    assert main(["log", "compact", str(compacted)]) == ExitCode.OK
    assert "prices-0: nothing to compact" in capsys.readouterr().out, "it is known to be compacted now"


def test_compact_keeps_the_last_record_of_every_key(compacted: Path, capsys: Captured) -> None:
    assert main(["log", "compact", str(compacted / "prices-0")]) == ExitCode.OK
    assert "prices-0: " in capsys.readouterr().out
    assert main(["log", "verify", str(compacted)]) == ExitCode.OK
    capsys.readouterr()
    main(["log", "stats", str(compacted), "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["keys"] == 10
    assert found["records"] < 60
    assert found["dirty_ratio"] == 0
    directory = LogDirectory.open(str(compacted))
    assert directory.was_clean
    log = directory.open_log("prices", 0, config=LogConfig(compact=True))
    assert log.end_offset == 300
    directory.close()
    assert main(["log", "compact", str(compacted)]) == ExitCode.OK
    assert "nothing to compact" in capsys.readouterr().out


def test_a_log_whose_compaction_was_killed_after_a_swap_is_sound(
    compacted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap_and_die(*args: Any) -> None:
        swap(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(compacting, "swap", swap_and_die)
    (place,) = find_partitions(REAL_FILES, str(compacted))
    with pytest.raises(KeyboardInterrupt):
        compacting.compact(place, segment_bytes=1500)
    assert main(["log", "verify", str(compacted)]) == ExitCode.OK
    monkeypatch.undo()
    assert main(["log", "compact", str(compacted)]) == ExitCode.OK


def test_compact_refuses_what_is_not_a_compacted_topic_or_was_not_stopped(tmp_path: Path, capsys: Captured) -> None:
    directory = LogDirectory.open(str(tmp_path))
    log = directory.open_log("events", 0, config=LogConfig(segment_bytes=300))
    for _ in range(20):
        batch = build_batch([Record(timestamp=T0, value=b"no key")])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    assert main(["log", "compact", str(tmp_path / "events-0")]) == ExitCode.FAILED
    assert "is locked" in capsys.readouterr().err
    directory.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "events-0").iterdir()}
    assert main(["log", "compact", str(tmp_path / "events-0")]) == ExitCode.FAILED
    assert "records without a key" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "events-0").iterdir()} == before
    (tmp_path / ".kafka_cleanshutdown").unlink()
    assert main(["log", "compact", str(tmp_path / "events-0")]) == ExitCode.FAILED
    assert "was not closed cleanly" in capsys.readouterr().err
