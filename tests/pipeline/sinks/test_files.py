"""Few files: a batch waits until there is enough for one, but not for ever."""

from tidemark.pipeline.sinks.files import commit_by_size_or_time
from tidemark.pipeline.spec import FileSink


def test_a_commit_waits_for_size_or_time() -> None:
    sink = FileSink(name="s", view="v", kind="parquet", path="p", target_file_bytes=1 << 20, commit_every_s=90, files=2)
    options = commit_by_size_or_time(sink, record_bytes=1024)
    assert options == {"minOffsetsPerTrigger": "2048", "maxTriggerDelay": "90000ms"}


def test_without_a_time_every_trigger_commits() -> None:
    assert commit_by_size_or_time(FileSink(name="s", view="v", kind="delta"), record_bytes=1) == {}
