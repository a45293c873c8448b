from __future__ import annotations

from pathlib import Path
from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

SPACE_FROM = 4
NOT_TOLD = -1


def sizes(answer: Any, topic: str) -> dict[int, int]:
    return {
        each.partition_index: each.partition_size
        for result in answer.results
        for told in result.topics
        if told.name == topic
        for each in told.partitions
    }


async def ask(client: Any, version: int, topic: str, *indexes: int) -> Any:
    topics = [DescribableLogDirTopic(topic=topic, partitions=list(indexes))]
    return await client.ask(DescribeLogDirsRequest(topics=topics), version)


async def test_directories_are_returned_with_the_size_of_each_partition(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"x" * 1000)
    answer = await ask(shared, version, topic, 0, 1)
    assert answer.error_code == ErrorCode.NONE
    (result,) = answer.results
    assert (result.error_code, Path(result.log_dir).is_absolute()) == (0, True)
    told = sizes(answer, topic)
    assert told[0] > 1000
    assert told == {0: told[0], 1: 0}
    for each in result.topics[0].partitions:
        assert (each.offset_lag, each.is_future_key) == (0, False)


async def test_the_space_of_the_volume_is_listed_from_version_4_on(shared: Any, topic: str, version: int) -> None:
    (result,) = (await ask(shared, version, topic, 0)).results
    if version < SPACE_FROM:
        assert (result.total_bytes, result.usable_bytes) == (NOT_TOLD, NOT_TOLD)
    else:
        assert 0 < result.usable_bytes <= result.total_bytes
    assert not result.is_cordoned


async def test_null_asks_for_all_and_an_empty_list_for_none(shared: Any, topic: str, version: int) -> None:
    everything = await shared.ask(DescribeLogDirsRequest(topics=None), version)
    assert set(sizes(everything, topic)) == {0, 1, 2}
    nothing = await shared.ask(DescribeLogDirsRequest(topics=[]), version)
    assert [each.topics for each in nothing.results] == [[]]


async def test_what_is_not_here_is_left_out(shared: Any, topic: str, version: int) -> None:
    assert [each.topics for each in (await ask(shared, version, "missing", 0)).results] == [[]]
    assert set(sizes(await ask(shared, version, topic, 1, 99, 1), topic)) == {1}


async def test_a_broker_with_two_directories_tells_of_both(start_node: Any, connect: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    node = await start_node(log_dirs=",".join(map(str, paths)))
    client = await connect(node)
    await client.create("t", 4)
    answer = await client.ask(DescribeLogDirsRequest(topics=None))
    assert {each.log_dir for each in answer.results} == set(map(str, paths))
    assert all(each.topics for each in answer.results)
    assert set(sizes(answer, "t")) == {0, 1, 2, 3}


async def test_a_directory_that_cannot_be_looked_at_has_an_error_of_its_own(
    client: Any, node: Any, monkeypatch: Any
) -> None:
    def broken(_path: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as disk:
        disk.setattr("os.statvfs", broken)
        answer = await client.ask(DescribeLogDirsRequest(topics=None))
    assert [each.error_code for each in answer.results] == [ErrorCode.KAFKA_STORAGE_ERROR]
