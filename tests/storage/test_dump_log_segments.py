"""Apache Kafka's own tool reads what we write, and has nothing to say against it."""

from __future__ import annotations

import re
from random import Random

import pytest

from tidemark.protocol.records import EndTransaction, Record, build_batch, build_end_transaction, read_header
from tidemark.storage import LogConfig

T0 = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=8000, index_interval_bytes=300, producer_id_expiration_ms=1 << 60)


def fill(log, make_batch, append, *, batches=300):
    """All codecs, timestamps that go back and forth, two producers, several epochs."""
    random = Random(1)
    sequences = {5: 0, 6: 0}
    for number in range(batches):
        count = random.randint(1, 6)
        timestamp = T0 + number * 10 - random.choice([0, 0, 500])
        producer = random.choice([-1, 5, 6])
        sequence = sequences.get(producer, -1)
        batch = make_batch(
            count, timestamp=timestamp, size=50, compression=number % 5, producer_id=producer, sequence=sequence
        )
        if producer >= 0:
            sequences[producer] += count
        append(log, batch, leader_epoch=number // 100)


@pytest.mark.parametrize(
    "options", [("--deep-iteration", "--print-data-log"), ("--verify-index-only",), ("--index-sanity-check",)]
)
def test_kafka_reads_a_closed_log_without_complaint(open_log, make_batch, append, dump, tmp_path, options):
    log = open_log(config=CONFIG)
    fill(log, make_batch, append)
    end = log.end_offset
    assert log.segment_count > 5
    log.close()
    output, complaints = dump(tmp_path / "topic-0", options=options)
    assert complaints == []
    if "--deep-iteration" in options:
        assert len(re.findall(r"^\| offset: ", output, re.MULTILINE)) == end
        assert {"NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"} == {
            name.upper() for name in re.findall(r"compresscodec: (\w+)", output)
        }
        assert "producerId: 5 producerEpoch: 0" in output


def test_kafka_reads_a_killed_log_after_our_recovery(open_log, make_batch, append, dump, tmp_path):
    log = open_log(config=CONFIG)
    fill(log, make_batch, append)
    log.close(clean=False)
    path = tmp_path / "topic-0"
    last = max(path.glob("*.log"))
    last.write_bytes(last.read_bytes() + b"\0\0\0\0torn")
    for index in path.glob("*.*index"):
        index.write_bytes(b"rubbish")
    log = open_log(config=CONFIG, clean=False)
    log.close()
    assert dump(path, options=("--deep-iteration",))[1] == []
    assert dump(path, options=("--index-sanity-check",))[1] == []


def test_kafka_reads_a_followers_log_with_gaps(open_log, make_batch, dump, tmp_path):
    log = open_log(config=CONFIG)
    offset = 0
    for number in range(200):
        batch = make_batch(2, timestamp=T0 + number, size=50, base_offset=offset, leader_epoch=3)
        log.append_replicated(batch)
        offset += 2 + number % 3
    log.close()
    output, complaints = dump(tmp_path / "topic-0", options=("--deep-iteration", "--print-data-log"))
    # Gaps between records are all the tool may remark upon.
    assert [line for line in complaints if "is followed by" not in line] == []
    assert output.count("| offset: ") == 400


def test_kafka_reads_transactions_and_the_index_of_aborted_ones(open_log, make_batch, append, dump, tmp_path):
    log = open_log(config=CONFIG)
    append(log, make_batch(3, producer_id=9, sequence=0, transactional=True))
    marker = build_end_transaction(EndTransaction(9, 0, commit=False, coordinator_epoch=4), timestamp=T0)
    log.append(marker, read_header(marker), leader_epoch=0, now_ms=T0)
    log.close()
    output, complaints = dump(tmp_path / "topic-0", options=("--deep-iteration", "--print-data-log"))
    assert complaints == []
    assert "endTxnMarker: ABORT" in output
    assert "version: 0 producerId: 9 firstOffset: 0 lastOffset: 3 lastStableOffset: 4" in output
    assert "producerId: 9 producerEpoch: 0 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong.empty" in output


def test_kafka_reads_a_compacted_log(open_log, make_batch, append, compact_log, dump, tmp_path):
    """Empty batches, merged segments, delete horizons and all."""
    log = open_log(config=CONFIG)
    fill(log, make_batch, append)
    for number in range(40):
        tombstone = build_batch([Record(timestamp=T0 + 9000, key=b"gone%d" % number)], compression=number % 5)
        append(log, tombstone, leader_epoch=3)
    for _ in range(20):
        append(log, make_batch(5, size=200), leader_epoch=3)
    before = log.segment_count
    compact_log(log)
    compact_log(log)  # what the first cleaning has left is small, and is merged
    assert log.segment_count < before
    log.close()
    output, complaints = dump(tmp_path / "topic-0", options=("--deep-iteration", "--print-data-log"))
    assert [each for each in complaints if "is followed by" not in each] == []  # gaps are what compaction makes
    assert output.count(f"deleteHorizonMs: OptionalLong[{T0 + CONFIG.delete_retention_ms}]") == 40
    for options in (("--verify-index-only",), ("--index-sanity-check",)):
        assert dump(tmp_path / "topic-0", options=options)[1] == []
