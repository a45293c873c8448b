"""A pipeline's YAML: what is right becomes a value, what is wrong is shown by line and key."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.spec import FileSink, Pipeline, TopicSink, TopicSource, load

ROOT = Path(__file__).parents[3]
GOOD = """\
name: shop
sources:
  orders:
    topic: orders
    format: json
    schema: {id: LONG, note: STRING}
steps:
  - name: big
    sql: SELECT * FROM orders WHERE id > 10
sinks:
  out:
    from: big
    topic: big-orders
"""
Load = Callable[..., Pipeline]


@pytest.fixture
def loading(tmp_path: Path) -> Load:
    def load_text(text: str, *overrides: str) -> Pipeline:
        file = tmp_path / "shop.yaml"
        file.write_text(text)
        return load(file, overrides=overrides)

    return load_text


def test_a_pipeline_is_read(loading: Load) -> None:
    pipeline = loading(GOOD)
    [source], [step], [sink] = pipeline.sources, pipeline.steps, pipeline.sinks
    assert isinstance(source, TopicSource)
    assert source.schema == "`id` LONG, `note` STRING"
    assert step.sql == "SELECT * FROM orders WHERE id > 10"
    assert isinstance(sink, TopicSink)
    assert (sink.view, sink.topic, sink.writers) == ("big", "big-orders", 1)
    assert pipeline.group == "pipeline-shop"


def test_a_path_of_this_machine_may_be_written_as_an_address(loading: Load) -> None:
    """Taken for another machine's, it would not be looked into, and an older checkpoint not be noticed."""
    for written in ("file:///data/here", "file:/data/here", "/data/here"):
        assert loading(f"checkpoint: {written}\n{GOOD}").checkpoint == "/data/here"
    assert loading(f"checkpoint: s3a://data/here\n{GOOD}").checkpoint == "s3a://data/here"


SHIPPED = [each for each in sorted((ROOT / "config" / "pipelines").glob("*.yaml")) if ".cases." not in each.name]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.stem)
def test_what_ships_is_right(file: Path) -> None:
    assert load(file).name == file.stem


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("format: json", "fromat: json", 5, "unknown key 'fromat' in sources.orders; did you mean 'format'?"),
        ("format: json", "format: jsn", 5, "must be one of json, avro, csv, debezium, string, binary, avro-confluent,"),
        ("format: json", "format: avro-confluent", 1, "sources.orders: the format 'avro-confluent' needs a 'registry'"),
        ("topic: big-orders", "topc: big-orders", 13, "unknown key 'topc' in sinks.out; did you mean 'topic'?"),
        ("from: big", "from: bigger", 10, "sinks.out.from: there is no source or step 'bigger'"),
        ("    topic: orders\n", "", 4, "needs either 'topic', 'topics' or 'pattern'"),
        ("sql: SELECT", "sequel: SELECT", 9, "unknown key 'sequel' in steps[0]"),
        ("    sql: SELECT * FROM orders WHERE id > 10\n", "", 8, "the step 'big' needs either 'sql' or 'from'"),
        ("topic: big-orders", "topic: big-orders\n    writers: many", 14, "sinks.out.writers must be a whole number"),
        ("topic: big-orders", "topic: big-orders\n    trigger: soon", 14, "'soon' is not a time such as '5 minutes'"),
        ("format: json", "format: avro", 6, "schema must be Avro's of a record, with fields"),
        ("name: shop", "name: shop\nname: shop", 2, "the key 'name' is given twice"),
        ("name: shop", "name: [shop", 2, "this is not YAML"),
        ("name: shop", "nmae: shop", 1, "unknown key 'nmae'; did you mean 'name'?"),
        ("    topic: big-orders", "", 12, "sinks.out needs the key 'topic'"),
        ("format: json", "format: json\n    on_malformed: dead_letter", 6, "needs 'dead_letter_topic'"),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_by_line_and_key(loading: Load, old: str, new: str, line: int, told: str) -> None:
    assert old in GOOD
    with pytest.raises(CommandFailed) as refused:
        loading(GOOD.replace(old, new, 1))
    assert f"shop.yaml:{line}: " in str(refused.value)
    assert told in str(refused.value)


def test_overrides_win_over_the_file(loading: Load) -> None:
    pipeline = loading(GOOD, "sinks.out.topic=other", "sinks.out.writers=3", "steps[0].sql=SELECT 1", "spark.a.b=c")
    assert pipeline.spark == {"a.b": "c"}
    [sink] = pipeline.sinks
    assert isinstance(sink, TopicSink)
    assert (sink.topic, sink.writers, pipeline.steps[0].sql) == ("other", 3, "SELECT 1")


@pytest.mark.parametrize("override", ["nothing", "=x", "steps[7].sql=x", "name.x=1", "sinks.out.topic=[a"])
def test_an_override_that_leads_nowhere_is_refused(loading: Load, override: str) -> None:
    with pytest.raises(CommandFailed, match="--set"):
        loading(GOOD, override)


def test_positions_by_time_and_offset(loading: Load) -> None:
    by_time = loading(GOOD, "sources.orders.start={time: 2030-01-31T12:00}").sources[0]
    by_offset = loading(GOOD, "sources.orders.start={offsets: {orders: {0: 17}}}").sources[0]
    assert isinstance(by_time, TopicSource)
    assert isinstance(by_offset, TopicSource)
    assert by_time.start_time_ms == 1896091200000
    assert by_offset.start == '{"orders": {"0": 17}}'
    with pytest.raises(CommandFailed, match=r"start\.time: 'noon' is neither"):
        loading(GOOD, "sources.orders.start={time: noon}")


def test_amounts_have_units(loading: Load) -> None:
    sink = "sinks.out={type: parquet, from: big, path: p, target_file_size: 64MB, commit_every: 5 minutes}"
    [made] = loading(GOOD, sink).sinks
    assert isinstance(made, FileSink)
    assert (made.target_file_bytes, made.commit_every_s) == (64 << 20, 300.0)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="There is no file"):
        load(tmp_path / "none.yaml")


def test_thresholds_are_shares(loading: Load) -> None:
    rules = "steps[0].rules={positive: id > 0}"
    [step] = loading(GOOD, rules, "steps[0].thresholds={warn: 1%, stop: 0.2}").steps
    assert (step.thresholds.warn, step.thresholds.stop) == (0.01, 0.2)
    assert step.thresholds.sentence(rows=1000, rejected=10) is None
    assert step.thresholds.sentence(rows=1000, rejected=11) == (
        "11 of 1,000 rows (1.1%) break rules; the limit is 1.0%",
        False,
    )
    told = step.thresholds.sentence(rows=10, rejected=3)
    assert told is not None
    assert told[1]
    with pytest.raises(CommandFailed, match="is not a share"):
        loading(GOOD, rules, "steps[0].thresholds={warn: 120%}")
    with pytest.raises(CommandFailed, match="has thresholds, but no rules"):
        loading(GOOD, "steps[0].thresholds={warn: 1%}")


def test_two_sinks_cannot_share_a_parquet_path(loading: Load) -> None:
    """Of two queries with the same batch numbers Spark would leave out one's rows."""
    both = GOOD + "  a: {type: parquet, from: big, path: lake/x}\n  b: {type: parquet, from: orders, path: ./lake/x}\n"
    with pytest.raises(CommandFailed, match=r"sinks\.a and sinks\.b have the same path, which Parquet cannot share"):
        loading(both)


def test_a_source_can_begin_in_a_lake(loading: Load, tmp_path: Path) -> None:
    [source] = loading(GOOD, "sources.orders.backfill={type: delta, path: lake/orders}").topic_sources
    assert source.backfill is not None
    assert (source.backfill.kind, source.backfill.path) == ("delta", str(tmp_path / "lake" / "orders"))
    with pytest.raises(CommandFailed, match="has no 'backfill'"):
        loading(GOOD, "sources.orders.type=table", "sources.orders.backfill={path: x}")
    with pytest.raises(CommandFailed, match="path"):
        loading(GOOD, "sources.orders.backfill={type: parquet}")


def test_a_sink_can_be_a_function(loading: Load) -> None:
    *_, sink = loading(GOOD + "  own: {type: python, from: big, python: 'mine:save'}\n").sinks
    assert isinstance(sink, FileSink)
    assert (sink.python, sink.is_table) == ("mine:save", False)
    with pytest.raises(CommandFailed, match="is not a function such as module:function"):
        loading(GOOD + "  own: {type: python, from: big, python: mine}\n")


def test_views_are_found_behind_others_as_sql_finds_them(loading: Load) -> None:
    """In letters of any size, and in rules: a table that was overlooked would let rows change their writer or sink."""
    table = "sources.names={type: table, topic: names, format: json, schema: {name: STRING}}"
    for step in (
        "{name: big, sql: SELECT * FROM orders JOIN NAMES}",
        '{name: big, from: orders, rules: {known: "id IN (SELECT id FROM Names)"}}',
    ):
        pipeline = loading(GOOD, table, f"steps=[{step}]")
        assert pipeline.is_behind_table("big")
        assert pipeline.views_behind(["big"]) >= {"big", "orders", "names"}
    assert not loading(GOOD, table).is_behind_table("big")


def test_the_present_is_found_in_sql_however_it_is_asked_for(loading: Load) -> None:
    """A rule that looks at it would judge a row anew when a batch is tried again."""
    for rule, is_there in (("UNIX_TIMESTAMP ( ) > 7", True), ("unix_timestamp(_timestamp) > 7", False)):
        pipeline = loading(GOOD, f"steps=[{{name: big, from: orders, rules: {{new: {rule!r}}}}}]")
        assert ("now" in pipeline.words_behind(["big"])) == is_there
