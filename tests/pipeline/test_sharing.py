"""One read of a source for all of its sinks: each gets its rows exactly once, also when another one fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.failure import CommandFailed
from tidemark.pipeline import graph, inputs, runner
from tidemark.pipeline.checkpoint import READS_NOTE, Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.inputs import Input
from tidemark.pipeline.sharing import LEFT_NOTE, keep_reads
from tidemark.pipeline.sinks.topic import TopicBatches
from tidemark.pipeline.sinks.upsert import Upserts
from tidemark.pipeline.spec import TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.conftest import Produce, Trial

Committed = Callable[[str], list[GeneratedRecord]]


def overrides(trial: Trial) -> list[str]:
    """Rules, a topic, two tables and a merged one, and dead letters: all of one read."""
    place, name = trial.checkpoint.parent, trial.name
    steps = json.dumps(
        [
            {"name": "checked", "from": "things", "rules": {"a is small": "a < 100"}, "thresholds": {"warn": "10%"}},
            {"name": "plain", "sql": "SELECT a FROM checked"},
        ]
    )
    sinks: dict[str, dict[str, Any]] = {
        "good": {"from": "checked", "topic": f"{name}-good"},
        "parquet": {"type": "parquet", "from": "plain", "path": f"{place}/parquet"},
        "iceberg": {"type": "iceberg", "from": "plain", "path": f"lake.db.s{name[-8:]}"},
        "merged": {"type": "delta", "from": "checked", "path": f"{place}/merged", "mode": "upsert", "keys": ["a"]},
    }
    described = {key: {**each, "trigger": "1 second"} for key, each in sinks.items()}
    source = f"{{topic: {name}, format: json, schema: {{a: LONG}}, dead_letter_topic: {name}-dead}}"
    return [f"sources={{things: {source}}}", f"steps={steps}", f"sinks={json.dumps(described)}"]


def outputs(trial: Trial, spark: SparkSession, committed: Committed) -> dict[str, list[int]]:
    place = trial.checkpoint.parent
    tables = {"parquet": spark.read.parquet(f"{place}/parquet")}
    tables["iceberg"] = spark.table(f"lake.db.s{trial.name[-8:]}")
    tables["merged"] = spark.read.format("delta").load(f"{place}/merged")
    return {
        "good": sorted(json.loads(each.value or b"")["a"] for each in committed(f"{trial.name}-good")),
        **{name: sorted(row.a for row in table.collect()) for name, table in tables.items()},
    }


def late_exception(self: StreamingQuery, real: Any = StreamingQuery.exception) -> Any:
    """A query that works when it is asked for its failure, and has failed when it is asked whether it still works."""
    found = real(self)
    if found is None:
        with suppress(StreamingQueryException):
            self.awaitTermination()
    return found


def test_sinks_of_one_source_share_its_read(
    trial: Trial, spark: SparkSession, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = overrides(trial)
    made: list[str] = []
    topic_input = inputs.topic_input

    def noted(spark: SparkSession, source: TopicSource, **options: Any) -> Input:
        made.append(source.name)
        return topic_input(spark, source, **options)

    monkeypatch.setattr(graph, "topic_input", noted)
    trial.produce(b'{"a": 1}', b'{"a": 200}', b"no json", b'{"a": 2}')
    ran = trial.run(*described)
    assert made == ["things", "things"]  # once to look at, for all of the sinks, and once to read
    expected = {"good": [1, 2], "parquet": [1, 2], "iceberg": [1, 2], "merged": [1, 2]}
    assert outputs(trial, spark, committed) == expected
    assert [each.value for each in committed(f"{trial.name}-dead")] == [b"no json"]
    assert [each.name for each in (trial.checkpoint / "sinks").iterdir()] == ["read.things.1s"]
    assert "1 of 3 rows (33.3%) break rules" in trial.said.getvalue()
    assert 'rows_total{pipeline="' in ran.metrics.text()
    assert ran.metrics.lag == dict.fromkeys((*expected, "dead-letters-things"), 0)

    # The last of them fails after the others have written: the batch is tried again, and no row is there twice.
    real, fails = Upserts.__call__, [1]

    def once_failing(upserts: Upserts, batch: DataFrame, batch_id: int) -> None:
        if fails.pop() if fails else False:
            raise TimeoutError("Timed out, for a test")
        real(upserts, batch, batch_id)

    monkeypatch.setattr(Upserts, "__call__", once_failing)
    monkeypatch.setattr(StreamingQuery, "exception", late_exception)
    trial.produce(b'{"a": 3}', b'{"a": 300}', b"neither")
    trial.run(*described)
    assert "Starting again (1/5)" in trial.said.getvalue()
    assert outputs(trial, spark, committed) == dict.fromkeys(expected, [1, 2, 3])  # noqa: RUF024
    assert [each.value for each in committed(f"{trial.name}-dead")] == [b"no json", b"neither"]

    # One that gets state cannot go on.
    state = "SELECT a FROM checked GROUP BY a, window(_timestamp, '1 minute')"
    with pytest.raises(CommandFailed, match=r"sinks\.parquet shared the reading of its source .* and cannot any more"):
        trial.run(*described, f"steps[1].sql={state}")


def test_a_table_grows_by_what_is_new(trial: Trial, committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches; the table's topic is read from its beginning once, and each of its records once."""
    from tidemark.pipeline import growing_table

    read: list[tuple[dict[object, int], dict[object, int]]] = []
    real = growing_table.GrowingTable._added

    def noted(self: object, spark: object, starts: dict[object, int], ends: dict[object, int]) -> object:
        read.append((dict(starts), dict(ends)))
        if len(read) == 1:  # while the first batch runs, the table changes
            trial.produce_to(names, b'{"name": "eins"}', key=b"1")
            trial.produce_to(names, None, key=b"2")
            trial.produce_to(names, b"no json", key=b"3")
        return real(self, spark, starts, ends)  # type: ignore[arg-type]

    monkeypatch.setattr(growing_table.GrowingTable, "_added", noted)
    names = f"{trial.name}-names"
    trial.create_topic(names)
    for key in (b"1", b"2", b"3"):
        trial.produce_to(names, b'{"name": "%s"}' % {b"1": b"one", b"2": b"two", b"3": b"three"}[key], key=key)
    trial.produce(*(b'{"id": "%d"}' % number for number in (1, 2, 3, 1, 2, 3, 1, 2, 3)))
    letters = f"dead_letter_topic: {trial.name}-dead"
    source = f"sources.names={{type: table, topic: {names}, format: json, schema: {{name: STRING}}, {letters}}}"
    keyed = "SELECT CAST(_key AS STRING) AS k, name FROM names"
    sql = f"SELECT id, name, _topic, _partition, _offset FROM things LEFT JOIN ({keyed}) ON id = k"
    steps = json.dumps([{"name": "joined", "sql": sql}])
    limited = ["sources.things.schema={id: STRING}", "sources.things.batch_records_max=3"]
    described = [source, *limited, f"steps={steps}", "sinks.out.from=joined"]
    trial.run(*described)
    rows = [json.loads(each.value or b"") for each in committed(f"{trial.name}-out")]
    assert rows[:3] == [{"id": "1", "name": "one"}, {"id": "2", "name": "two"}, {"id": "3", "name": "three"}]
    assert rows[3:6] == rows[6:] == [{"id": "1", "name": "eins"}, {"id": "2"}, {"id": "3", "name": "three"}]
    partition = (names, 0)
    assert read == [({partition: 0}, {partition: 3}), ({partition: 3}, {partition: 6})]
    assert "sources.names: 1 malformed records are not in the table" in trial.said.getvalue()
    trial.run(*described)
    assert [each.value for each in committed(f"{trial.name}-dead")] == [b"no json"]


def test_a_batch_tried_again_after_the_table_changed_writes_each_row_once(
    trial: Trial, cluster: ClusterAdmin, produce: Produce, committed: Committed
) -> None:
    """One writer's part is refused by the broker while the other's is written; then the table's values are others."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    # Names that are always the same: by them partitions go to writers, and each of the two must have some.
    things, names, good, small = (f"retried-{each}" for each in ("things", "names", "good", "small"))
    trial.create_topic(things, partitions=8)
    for topic in (names, good):
        trial.create_topic(topic)
    cluster.create_topic(small, partitions=1, config={"max.message.bytes": "60"})
    trial.produce_to(names, b'{"name": "old"}', key=b"k")
    values = {str(number).encode(): b'{"id": %d, "k": "k"}' % number for number in range(40)}
    produce(GeneratedRecord(topic=things, key=key, value=value) for key, value in values.items())
    sources = {
        "things": {"topic": things, "format": "json", "schema": {"id": "LONG", "k": "STRING"}},
        "names": {"type": "table", "topic": names, "format": "json", "schema": {"name": "STRING"}},
    }
    sql = (
        f"SELECT id, name, IF(_partition = 0, '{small}', '{good}') AS to, _topic, _partition, _offset FROM things "
        "LEFT JOIN (SELECT CAST(_key AS STRING) AS key, name FROM names) ON k = key"
    )
    # By these keys, half of the rows would change their writer with the table's value: those that go to the writer that
    # has failed would be there twice, and those that come from it never.
    key = f"IF(to = '{small}', 'refused', concat(name, id))"
    sinks = {"out": {"from": "joined", "topic_column": "to", "key": key, "writers": 2}}
    steps = json.dumps([{"name": "joined", "sql": sql}])
    described = [f"sources={json.dumps(sources)}", f"steps={steps}", f"sinks={json.dumps(sinks)}", "restarts_max=0"]

    def written() -> list[tuple[int, str]]:
        found = [json.loads(each.value or b"") for topic in (good, small) for each in committed(topic)]
        return sorted((row["id"], row["name"]) for row in found)

    with pytest.raises(CommandFailed):
        trial.run(*described)
    first = written()
    assert 0 < len(first) < 40
    trial.produce_to(names, b'{"name": "new"}', key=b"k")
    large = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, small, incremental_configs=[large])
    cluster.admin.incremental_alter_configs([resource])[resource].result()
    trial.run(*described[:-1])  # Spark's connector may fail once in its report of a batch that was begun before
    old = {number for number, _ in first}
    assert written() == [(number, "old" if number in old else "new") for number in range(40)]


def test_a_batch_tried_again_sees_its_tables_as_before(
    trial: Trial, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By newer values a row would keep a rule that it has broken, or the other way round, after one of two sinks has
    its part of the batch: it would be in both, or in none."""
    names = f"{trial.name}-names"
    trial.create_topic(names)
    real, meanwhile = TopicBatches.__call__, [lambda: trial.produce_to(names, b'{"name": "bad"}', key=b"1")]

    def failing_after_the_first(batches: TopicBatches, batch: DataFrame, batch_id: int) -> None:
        if batches._sink.name == "rejected" and meanwhile:
            meanwhile.pop()()
            raise TimeoutError("Timed out, for a test")
        real(batches, batch, batch_id)

    monkeypatch.setattr(TopicBatches, "__call__", failing_after_the_first)
    monkeypatch.setattr(runner, "RESTART_PAUSE_S", 0.01)
    source = f"sources.names={{type: table, topic: {names}, format: json, schema: {{name: STRING}}}}"
    sql = "SELECT id, name FROM things LEFT JOIN (SELECT CAST(_key AS STRING) AS k, name FROM NAMES) ON id = k"
    steps = json.dumps([{"name": "checked", "sql": sql, "rules": {"known": "name = 'good'"}}])
    sinks = {"checked": "good", "checked_rejected": "rejected"}
    described = {name: {"from": view, "topic": f"{trial.name}-{name}"} for view, name in sinks.items()}
    all_of_it = [source, "sources.things.schema={id: STRING}", f"steps={steps}", f"sinks={json.dumps(described)}"]

    def written() -> list[list[str]]:
        return [
            [json.loads(m.value or b"")["id"] for m in committed(f"{trial.name}-{name}")] for name in sinks.values()
        ]

    for key, name in ((b"1", b"good"), (b"2", b"bad")):
        trial.produce_to(names, b'{"name": "%s"}' % name, key=key)
    trial.produce(b'{"id": "1"}', b'{"id": "2"}')
    trial.run(*all_of_it)
    assert "Starting again (1/5)" in trial.said.getvalue()
    assert written() == [["1"], ["2"]]

    # By queries of their own, each would see the table at another time.
    for apart in ("share_reads=false", "sinks.rejected.trigger=3 seconds"):
        with pytest.raises(CommandFailed, match=r"sinks\.good and sinks\.rejected: a 'type: table' source, which each"):
            trial.run(*all_of_it, apart, f"checkpoint={trial.checkpoint}-apart")

    # What the table was made of is gone: nothing is decided in silence.
    meanwhile.append(lambda: trial.delete_before(2, topic=names))
    trial.produce(b'{"id": "1"}', b'{"id": "2"}')
    with pytest.raises(CommandFailed, match=r"Batch 1 was begun with the table 'names' .* Remove \S+json to go on"):
        trial.run(*all_of_it)
    assert written() == [["1"], ["2"]]
    (trial.checkpoint / "tables.read.things.1s.json").unlink()
    trial.run(*all_of_it)
    assert written() == [["1"], ["2", "1", "2"]]


def reads(trial: Trial) -> set[str]:
    return {each.name for each in (trial.checkpoint / "sinks").iterdir()}


def test_two_sinks_of_one_table_both_get_their_rows(trial: Trial, spark: SparkSession) -> None:
    """A table's log knows a query's batches by number: shared, the second sink's would be taken for written."""
    place, iceberg = trial.checkpoint.parent, f"lake.db.t{trial.name[-8:]}"
    steps = [{"name": f"rows{n}", "sql": f"SELECT a, {n} AS n FROM things"} for n in (1, 2)]
    sinks = {
        f"{kind}{n}": {"type": kind, "from": f"rows{n}", "path": path, "trigger": "1 second"}
        for kind, path in (("delta", f"{place}/delta"), ("iceberg", iceberg))
        for n in (1, 2)
    }
    trial.produce(b'{"a": 7}')
    trial.run("sources.things.schema={a: LONG}", f"steps={json.dumps(steps)}", f"sinks={json.dumps(sinks)}")
    for table in (spark.read.format("delta").load(f"{place}/delta"), spark.table(iceberg)):
        assert sorted((row.a, row.n) for row in table.collect()) == [(7, 1), (7, 2)]


def test_a_sink_that_left_a_shared_read_is_not_put_back_in_silence(trial: Trial, committed: Committed) -> None:
    """It would miss what the others got meanwhile, or write everything again."""
    schema = "sources.things.schema={a: LONG}"
    both = [f"sinks.more={{from: things, topic: {trial.name}-more}}", schema]
    trial.produce(b'{"a": 1}')
    trial.run(*both)
    assert reads(trial) == {"read.things.1s"}
    trial.produce(b'{"a": 2}')
    trial.run(schema)
    with pytest.raises(CommandFailed, match=r"sinks\.more was taken out of the pipeline .* before .*\"0\": 1"):
        trial.run(*both)
    assert [each.value for each in committed(f"{trial.name}-more")] == [b'{"a":1}']
    assert [each.value for each in committed(f"{trial.name}-out")] == [b'{"a":1}', b'{"a":2}']
    trial.run(schema, f"sinks.other={{from: things, topic: {trial.name}-other}}")  # a new one starts anew, alone
    assert [each.value for each in committed(f"{trial.name}-other")] == [b'{"a":1}', b'{"a":2}']

    # Rules that hold only for a while would judge a row anew when a batch is tried again: nothing is shared then.
    rules = [{"name": "checked", "from": "things", "rules": {"not from the future": "_timestamp <= now()"}}]
    sinks = {name: {"from": name, "topic": f"{trial.name}-{name}"} for name in ("checked", "checked_rejected")}
    elsewhere = f"checkpoint={trial.checkpoint}-2"
    trial.run(schema, elsewhere, f"steps={json.dumps(rules)}", f"sinks={json.dumps(sinks)}")
    assert {each.name for each in (trial.checkpoint.with_name("checkpoint-2") / "sinks").iterdir()} == set(sinks)


def test_a_sink_that_left_before_its_first_batch_was_finished_is_known_too(tmp_path: Path) -> None:
    """It may have its part of that batch."""
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.write_note(READS_NOTE, {"read.things.1s": ["more", "out"]})
    log = tmp_path / "sinks" / "read.things.1s" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text('v1\n{}\n{"things": {"0": 3}}\n')
    keep_reads([], checkpoint)
    left = {"read": "read.things.1s", "at": {"things": {"0": 3}}}
    assert checkpoint.read_note(LEFT_NOTE) == {"more": left, "out": left}


def test_a_table_whose_topic_was_made_anew_is_read_anew(
    trial: Trial, cluster: ClusterAdmin, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old offsets say nothing about the new topic: the rows before them would never be in the table."""
    from tidemark.pipeline import shared_batches

    names = f"{trial.name}-names"
    trial.create_topic(names)
    for number in range(3):
        trial.produce_to(names, b'{"name": "old"}', key=b"%d" % number)
    trial.produce(b'{"id": "0"}', b'{"id": "0"}', b'{"id": "0"}')
    real = shared_batches.SharedBatches.__call__
    later = {1: [b"0", b"8", b"9"], 2: [b"0", b"7", b"8", b"9"]}  # as many as before, and more

    def made_anew(self: shared_batches.SharedBatches, batch: DataFrame, batch_id: int) -> None:
        if batch_id in later:
            cluster.admin.delete_topics([names])[names].result()
            trial.create_topic(names)
            for key in later[batch_id]:
                trial.produce_to(names, b'{"name": "new %d"}' % batch_id, key=key)
        real(self, batch, batch_id)

    monkeypatch.setattr(shared_batches.SharedBatches, "__call__", made_anew)
    source = f"sources.names={{type: table, topic: {names}, format: json, schema: {{name: STRING}}}}"
    keyed = "SELECT CAST(_key AS STRING) AS k, name FROM names"
    steps = json.dumps([{"name": "joined", "sql": f"SELECT id, name FROM things LEFT JOIN ({keyed}) ON id = k"}])
    limited = ["sources.things.schema={id: STRING}", "sources.things.batch_records_max=1"]
    trial.run(source, *limited, f"steps={steps}", "sinks.out.from=joined")
    rows = [json.loads(each.value or b"") for each in committed(f"{trial.name}-out")]
    assert [row["name"] for row in rows] == ["old", "new 1", "new 2"]
    assert f"{names} was made anew" in trial.said.getvalue()
