"""`tidemark pipeline …`: run, validate, test, explain, status, compact, maintain, generate."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.spec import WITH_SECRETS, Pipeline, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="tidemark pipeline", description="Topics in, tables and topics out, exactly once, on Spark."
    )
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = _with_file(commands.add_parser("run", help="run a pipeline until Ctrl-C"), _run)
    run.add_argument("--once", action="store_true", help="read what is there now, then end")
    _with_master(run)
    _with_master(_with_file(commands.add_parser("validate", help="find mistakes without running"), _validate))
    validate = commands.choices["validate"]
    validate.add_argument("--no-spark", action="store_true", help="leave the SQL unchecked: quick, and needs no JVM")
    validate.add_argument("--offline", action="store_true", help="the file alone: no broker, no JVM")
    _with_master(_with_file(commands.add_parser("explain", help="show Spark's plan for each sink"), _explain))
    status = _with_file(commands.add_parser("status", help="show how far a pipeline is"), _status)
    status.add_argument("--json", action="store_true", help="as JSON")
    compact = commands.add_parser(
        "compact", help="make few large files of a table's many small ones; stop what writes to it first"
    )
    compact.add_argument("table", metavar="TABLE", help="a directory of Parquet or Delta, or an Iceberg table's name")
    compact.add_argument("--target-file-size", default="128MB", metavar="SIZE")
    compact.add_argument("--warehouse", metavar="DIRECTORY", help="where Iceberg tables are kept")
    compact.add_argument("--file", type=Path, metavar="FILE", help="the pipeline that says where they are kept")
    _with_master(compact).set_defaults(command=_compact)
    maintain = commands.add_parser(
        "maintain", help="see to a pipeline's tables: compact them, expire old versions, remove files without an owner"
    )
    _with_file(maintain, _maintain)
    maintain.add_argument("--sink", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    maintain.add_argument("--keep", default="7 days", metavar="TIME", help="versions (default: %(default)s)")
    maintain.add_argument("--orphans", default="3 days", metavar="TIME", help="stray files (default: %(default)s)")
    maintain.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _with_master(maintain)
    test = _with_file(commands.add_parser("test", help="run the cases beside a pipeline: records in, rows out"), _test)
    test.add_argument("--cases", type=Path, metavar="FILE", help="where they are (default: NAME.cases.yaml beside it)")
    test.add_argument("-k", dest="only", metavar="TEXT", help="only the cases with this in their name")
    test.add_argument(
        "--dry-run",
        type=int,
        metavar="N",
        help="instead: the last N records of the real topics; nothing is written there",
    )
    test.add_argument("--record", type=Path, metavar="FILE", help="with --dry-run: keep it as a case in this file")
    generate = commands.add_parser("generate", help="produce the input of a shipped pipeline at a set rate")
    generate.add_argument("name", metavar="NAME", help="clickstream, orders, archive, replay or quality")
    generate.add_argument("--rate", type=int, default=1000, metavar="N", help="records per second (default: 1000)")
    generate.add_argument("--count", type=int, metavar="N", help="stop after so many (default: never)")
    generate.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed, the same records")
    generate.add_argument(
        "-b", "--bootstrap", default=os.environ.get("TIDEMARK_BOOTSTRAP") or "127.0.0.1:9092", metavar="HOST:PORT,…"
    )
    generate.set_defaults(command=_generate)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        code: int = args.command(args)
        sys.stdout.flush()
    except CommandFailed as failure:
        print(f"tidemark: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return code


def _with_file(command: argparse.ArgumentParser, run: Any) -> argparse.ArgumentParser:
    command.add_argument("file", type=Path, metavar="FILE", help="the pipeline's YAML")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="a value that wins over the file, such as sinks.counts.topic=other; may be repeated",
    )
    command.set_defaults(command=run)
    return command


def _with_master(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--master", default=DEFAULT_MASTER, metavar="M", help="Spark's master (default: %(default)s)")
    return command


def _session(pipeline: Pipeline, master: str, *, log: Path, **settings: str) -> SparkSession:
    from tidemark.pipeline.spark import session

    return session(
        pipeline.name, master=master, warehouse=pipeline.warehouse, settings={**settings, **pipeline.spark}, log=log
    )


def _log_of(pipeline: Pipeline) -> Path:
    """Beside the checkpoint, and that of the last run beside it; a temporary file if that is on another machine."""
    checkpoint = Checkpoint(pipeline.checkpoint)
    if not checkpoint.is_local:
        return _passing_log()
    checkpoint.path.mkdir(parents=True, exist_ok=True)
    log = checkpoint.path / "spark.log"
    if log.exists():
        log.replace(log.with_suffix(".log.last"))
    return log


def _passing_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="tidemark-spark-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _require_sources(pipeline: Pipeline) -> None:
    from tidemark.pipeline.inputs import topics_of

    cluster = ClusterAdmin(pipeline.bootstrap, pipeline.kafka)
    for source in pipeline.topic_sources:
        topics_of(source, cluster)


def _run(args: argparse.Namespace) -> int:
    from tidemark.pipeline.lineage import told
    from tidemark.pipeline.places import require_not_left_behind
    from tidemark.pipeline.runner import Runner, stop_on_signals
    from tidemark.pipeline.spark import reporting_jvm_exit

    pipeline = load(args.file, overrides=args.overrides)
    require_not_left_behind(pipeline)
    _require_sources(pipeline)  # before the JVM starts: a wrong address is reported at once
    log = _log_of(pipeline)
    spark = _session(pipeline, args.master, log=log)
    with reporting_jvm_exit(spark, log=log):
        runner = Runner(spark, pipeline, once=args.once)
        stop_on_signals(runner)
        with told(pipeline, lambda: runner.metrics.rows):
            runner.run()
    return ExitCode.OK


def _validate(args: argparse.Namespace) -> int:
    pipeline = load(args.file, overrides=args.overrides, secrets=() if args.offline else WITH_SECRETS)
    if not args.offline:
        _require_sources(pipeline)
    if not args.no_spark and not args.offline:
        _views(pipeline, args.master)
    print(f"{args.file}: no mistakes found.")
    return ExitCode.OK


def _test(args: argparse.Namespace) -> int:
    from tidemark.pipeline.testing.command import FOR_CASES, dry_run, run_cases

    if args.dry_run is not None:
        pipeline = load(args.file, overrides=args.overrides)
        return dry_run(pipeline, count=args.dry_run, record=args.record)
    pipeline = load(args.file, overrides=args.overrides, secrets=FOR_CASES)
    return run_cases(pipeline, cases=args.cases, only=args.only)


def _explain(args: argparse.Namespace) -> int:
    pipeline = load(args.file, overrides=args.overrides)
    for name, view in _views(pipeline, args.master).items():
        print(f"== {name} ==")
        view.explain(mode="formatted")
    return ExitCode.OK


def _views(pipeline: Pipeline, master: str) -> dict[str, Any]:
    """Every sink's rows, analysed: unknown columns and wrong types are found here."""
    from pyspark.errors import AnalysisException

    from tidemark.pipeline.graph import Graph, all_sinks
    from tidemark.pipeline.repeatable import require_sure_division
    from tidemark.pipeline.schemas import resolve_schemas
    from tidemark.pipeline.sharing import reads_of
    from tidemark.pipeline.sinks.files import columns_of_table, require_fitting
    from tidemark.pipeline.sinks.rows import rows_for
    from tidemark.pipeline.sinks.topic import division_of
    from tidemark.pipeline.sinks.upsert import merge_of, rows_of_table
    from tidemark.pipeline.spec import TopicSink

    spark = _session(pipeline, master, log=_passing_log(), **{"spark.ui.enabled": "false"})
    cluster = ClusterAdmin(pipeline.bootstrap, pipeline.kafka)
    checkpoint = Checkpoint(pipeline.checkpoint, spark)
    schemas = resolve_schemas(spark, pipeline, cluster, checkpoint, keep=False)
    graph = Graph(spark, pipeline, schemas=schemas)
    reads = reads_of(pipeline, all_sinks(pipeline), graph, checkpoint)
    by_sink = {sink.name: graph.plan_of(sink) for sink in pipeline.sinks}
    require_sure_division(by_sink, pipeline, [each.names for each in reads])
    views = {}
    for sink in all_sinks(pipeline):
        view = graph.plan_of(sink)
        try:
            views[sink.name] = rows = rows_for(view, sink, pipeline, register=False)
            if isinstance(sink, TopicSink):
                division_of(view, sink, pipeline)
            else:
                written = rows_of_table(rows, merge_of(view, sink)) if sink.is_upsert else rows
                new = require_fitting(columns_of_table(spark, sink), written, sink)
                if new:
                    print(f"sinks.{sink.name}: {sink.path} will get the columns {', '.join(new)}.")
        except AnalysisException as error:
            why = str(error).strip().splitlines()[0].rstrip(".")
            raise CommandFailed(f"sinks.{sink.name}: {why}.", code=ExitCode.USAGE) from None
    return views


def _status(args: argparse.Namespace) -> int:
    from tidemark.pipeline.status import show

    show(load(args.file, overrides=args.overrides), as_json=args.json)
    return ExitCode.OK


def _compact(args: argparse.Namespace) -> int:
    from tidemark.pipeline.compaction import compact
    from tidemark.pipeline.spark import session
    from tidemark.pipeline.spec.units import parse_bytes

    try:
        target = parse_bytes(args.target_file_size)
    except ValueError as error:
        raise CommandFailed(f"--target-file-size: {error}.", code=ExitCode.USAGE) from None
    settings = {"spark.ui.enabled": "false"}
    warehouse = _warehouse_of(args)
    spark = session("compact", master=args.master, warehouse=warehouse, settings=settings, log=_passing_log())
    try:
        print(compact(spark, args.table, target_file_bytes=target))
    finally:
        spark.stop()
    return ExitCode.OK


def _maintain(args: argparse.Namespace) -> int:
    from tidemark.pipeline.maintenance import Upkeep, maintain
    from tidemark.pipeline.spec import FileSink
    from tidemark.pipeline.spec.units import parse_seconds
    from tidemark.pipeline.status import running_pid

    pipeline = load(args.file, overrides=args.overrides)
    tables = [each for each in pipeline.sinks if isinstance(each, FileSink) and each.path]
    chosen = [each for each in tables if not args.sink or each.name in args.sink]
    if unknown := sorted(set(args.sink) - {each.name for each in tables}):
        raise CommandFailed(f"{args.file} has no table sink {unknown[0]!r}.", code=ExitCode.USAGE)
    try:
        keep_s, orphans_s = parse_seconds(args.keep), parse_seconds(args.orphans)
    except ValueError as error:
        raise CommandFailed(f"--keep, --orphans: {error}.", code=ExitCode.USAGE) from None
    pid = running_pid(pipeline)
    if pid is not None and not args.dry_run:
        raise CommandFailed(
            f"{pipeline.name} runs (process {pid}). Stop it first; or let it do this itself: 'maintenance' in its file."
        )
    spark = _session(pipeline, args.master, log=_passing_log(), **{"spark.ui.enabled": "false"})
    try:
        for sink in chosen:
            upkeep = Upkeep(
                target_file_bytes=sink.target_file_bytes, keep_s=keep_s, orphans_s=orphans_s, dry_run=args.dry_run
            )
            print(*maintain(spark, sink.path, upkeep), sep="\n", flush=True)
    finally:
        spark.stop()
    return ExitCode.OK


def _warehouse_of(args: argparse.Namespace) -> str:
    """Never guessed: an Iceberg table that is looked for elsewhere is a table that is not there."""
    from tidemark.pipeline.compaction import is_iceberg

    if args.warehouse is not None or not is_iceberg(args.table):
        return args.warehouse or "lake"
    if args.file is None:
        message = f"{args.table} is an Iceberg table's name: say where it is kept, with --file PIPELINE or --warehouse."
        raise CommandFailed(message, code=ExitCode.USAGE)
    return load(args.file, secrets=()).warehouse


def _generate(args: argparse.Namespace) -> int:
    from tidemark.pipeline.generators import generate

    generate(args.name, bootstrap=args.bootstrap, rate=args.rate, count=args.count, seed=args.seed)
    return ExitCode.OK
