"""Files and protocol, beside a broker that is running: the same rows, whatever happens to the files."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tidemark import EmbeddedBroker, embedded
from tidemark.pipeline.source.client import ReadFailed, ReadingClient
from tidemark.pipeline.source.options import ReadOptions, read_options
from tidemark.pipeline.source.planning import Planner, Range, split
from tidemark.pipeline.source.reading import read_range
from tidemark.pipeline.source.segments import FilesUnusable, Place, SegmentFiles

TOPIC = "t"
VALUES = [random.Random(number).randbytes(2_000) for number in range(3_000)]
Rows = list[tuple[int, bytes | None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One partition in several segments, its last megabyte still being written to."""
    with embedded(num_partitions=1, log_segment_bytes=1 << 20) as running:
        sender = Producer({"bootstrap.servers": running.bootstrap, "compression.type": "lz4", "linger.ms": 5})
        for number, value in enumerate(VALUES):
            sender.produce(TOPIC, value)
            if number % 100 == 99:
                sender.flush()
        sender.flush()
        del sender
        yield running


@pytest.fixture
def copied(broker: EmbeddedBroker, tmp_path: Path) -> Path:
    """The broker's directory as it might be mounted elsewhere; a test may do to it what it likes."""
    [log_dir] = {place.log_dir for place in plan(broker, options(broker))[1].values()}
    return Path(shutil.copytree(log_dir, tmp_path / "mounted", ignore=shutil.ignore_patterns(".lock")))


def options(broker: EmbeddedBroker, **given: str) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC, **given}, streaming=False)


def plan(broker: EmbeddedBroker, chosen: ReadOptions) -> tuple[list[Range], dict[Any, Place], bytes]:
    with ReadingClient(broker.bootstrap, timeout_s=10) as cluster:
        planner = Planner(cluster, chosen)
        selected = planner.partitions()
        ranges = planner.ranges(planner.start(selected), planner.end(selected))
        return ranges, planner.places(selected), planner.topics[TOPIC].topic_id


def read(broker: EmbeddedBroker, *, pieces: int = 1, **given: str) -> Rows:
    chosen = options(broker, **given)
    ranges, places, topic_id = plan(broker, chosen)
    rows: Rows = []
    for each in split(ranges, partitions_min=pieces, records_max=None):
        for batch in read_range(each, chosen, topic_id=topic_id, place=places.get((TOPIC, 0))):
            rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return rows


def moved(broker: EmbeddedBroker, copied: Path) -> str:
    [place] = plan(broker, options(broker))[1].values()
    return f"{place.log_dir}={copied}"


def segments(directory: Path) -> list[Path]:
    return sorted((directory / f"{TOPIC}-0").glob("*.log"))


@pytest.mark.parametrize("access", ["files", "protocol", "auto"])
@pytest.mark.parametrize("pieces", [1, 13])
def test_every_record_comes_once_and_in_order(broker: EmbeddedBroker, access: str, pieces: int) -> None:
    assert read(broker, pieces=pieces, **{"tidemark.access": access}) == list(enumerate(VALUES))


def test_the_files_at_hand_are_several_segments(copied: Path) -> None:
    assert len(segments(copied)) > 3


def _remove_first(logs: list[Path]) -> None:
    logs[0].unlink()


def _remove_last(logs: list[Path]) -> None:
    logs[-1].unlink()


def _tear(logs: list[Path]) -> None:
    os.truncate(logs[1], logs[1].stat().st_size - 1000)


def _damage(logs: list[Path]) -> None:
    with logs[2].open("r+b") as file:
        file.seek(200_000)
        file.write(bytes(64))


def _swap(logs: list[Path]) -> None:
    (logs[1].parent / (logs[1].name + ".swap")).touch()


def _no_index(logs: list[Path]) -> None:
    for log in logs:
        log.with_suffix(".index").unlink(missing_ok=True)


def _wrong_index(logs: list[Path]) -> None:
    for log in logs:
        log.with_suffix(".index").write_bytes(bytes(8) + b"\0\0\0\x09\0\0\0\x21" * 3)


DISASTERS: list[Callable[[list[Path]], None]] = [
    _remove_first, _remove_last, _tear, _damage, _swap, _no_index, _wrong_index,
]  # fmt: skip


@pytest.mark.parametrize("disaster", DISASTERS)
@pytest.mark.parametrize("pieces", [1, 5])
def test_whatever_is_wrong_with_files_the_rows_are_right(
    broker: EmbeddedBroker, copied: Path, disaster: Callable[[list[Path]], None], pieces: int
) -> None:
    disaster(segments(copied))
    assert read(broker, pieces=pieces, **{"tidemark.log.dirs": moved(broker, copied)}) == list(enumerate(VALUES))


def test_the_files_of_another_topic_or_node_are_not_read(broker: EmbeddedBroker, copied: Path) -> None:
    given = {"tidemark.log.dirs": moved(broker, copied), "tidemark.access": "files"}
    assert len(read(broker, **given)) == len(VALUES)  # type: ignore[arg-type]
    (copied / f"{TOPIC}-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(ReadFailed, match="does not belong to this topic"):
        read(broker, **given)  # type: ignore[arg-type]
    shutil.rmtree(copied)
    with pytest.raises(ReadFailed, match=r"tidemark\.access=files, but"):
        read(broker, **given)  # type: ignore[arg-type]


def test_files_removed_while_they_are_read_stay_readable(broker: EmbeddedBroker, copied: Path) -> None:
    chosen = options(broker, **{"tidemark.log.dirs": moved(broker, copied), "tidemark.access": "files"})
    [wanted], places, topic_id = plan(broker, chosen)
    reading = read_range(wanted, chosen, topic_id=topic_id, place=places[TOPIC, 0])
    count = len(next(reading))
    shutil.rmtree(copied)
    assert count + sum(len(batch) for batch in reading) == len(VALUES)


def test_a_directory_that_never_holds_still_is_given_up(broker: EmbeddedBroker, copied: Path) -> None:
    _swap(segments(copied))
    [place] = plan(broker, options(broker, **{"tidemark.log.dirs": moved(broker, copied)}))[1].values()
    with pytest.raises(FilesUnusable, match="keeps changing"):
        SegmentFiles(place, first=0, end=10)


def test_nothing_past_the_high_watermark_is_planned(broker: EmbeddedBroker) -> None:
    with pytest.raises(ReadFailed, match=f"offsets {len(VALUES)} to {len(VALUES) + 4} are gone"):
        read(broker, endingOffsets=f'{{"{TOPIC}": {{"0": {len(VALUES) + 5}}}}}')


def test_an_unreachable_broker_is_one_sentence() -> None:
    with (
        ReadingClient("127.0.0.1:1", timeout_s=0.2) as cluster,
        pytest.raises(ReadFailed, match=r"127\.0\.0\.1:1 did not"),
    ):
        cluster.topics(["t"])


def test_a_broker_that_asks_for_a_login_is_read_with_one() -> None:
    with embedded(security="scram", num_partitions=1) as secured:
        sender = Producer({**secured.client_settings, "linger.ms": 0})
        sender.produce(TOPIC, b"one")
        assert sender.flush(30) == 0
        login = {f"kafka.{name}": str(value) for name, value in secured.client_settings.items()}
        chosen = read_options({**login, "subscribe": TOPIC, "tidemark.access": "protocol"}, streaming=False)
        with ReadingClient(secured.bootstrap, timeout_s=10, security=chosen.security) as client:
            planner = Planner(client, chosen)
            [wanted] = planner.ranges(planner.start([(TOPIC, 0)]), planner.end(planner.partitions()))
        topic_id = planner.topics[TOPIC].topic_id
        rows = [row for batch in read_range(wanted, chosen, topic_id=topic_id, place=None) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"one"]
