"""Few large files of many small ones: Delta and Iceberg have means of their own, Parquet gets a new file log."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlparse

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline import causes
from tidemark.pipeline.sinks.files import local_path
from tidemark.pipeline.spec import FileSink, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "_spark_metadata"
COMPACT_INTERVAL = 10  # Spark's own default: every tenth file of the log holds all before it


def compact(spark: SparkSession, table: str, *, target_file_bytes: int) -> str:
    """What was done, in a sentence."""
    if is_iceberg(table):
        return _iceberg(spark, table, target_file_bytes)
    directory = Path(local_path(table))
    if "://" not in table and not directory.exists():
        recover(directory)
    if "://" in table or (directory / "_delta_log").is_dir():
        return _delta(spark, local_path(table), target_file_bytes)
    if not directory.is_dir():
        raise CommandFailed(f"There is no table {table}.", code=ExitCode.NOT_FOUND)
    return _parquet(spark, directory, target_file_bytes)


def is_iceberg(table: str) -> bool:
    """A name such as lake.db.orders, and no directory."""
    return "/" not in table and "." in table and not Path(table).exists()


def _iceberg(spark: SparkSession, table: str, target: int) -> str:
    if not spark.catalog.tableExists(table):
        where = spark.conf.get("spark.sql.catalog.lake.warehouse", "")
        raise CommandFailed(f"There is no table {table} in {where}.", code=ExitCode.NOT_FOUND)
    catalog, _, rest = table.partition(".")
    options = f"map('target-file-size-bytes', '{target}', 'min-input-files', '2')"
    done = spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{rest}', options => {options})").first()
    assert done is not None
    return f"{table}: {done['rewritten_data_files_count']} files became {done['added_data_files_count']}."


def _delta(spark: SparkSession, path: str, target: int) -> str:
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(target))
    done = spark.sql(f"OPTIMIZE delta.`{path}`").first()
    assert done is not None
    return f"{path}: {done['metrics']['numFilesRemoved']} files became {done['metrics']['numFilesAdded']}."


def _parquet(spark: SparkSession, directory: Path, target: int) -> str:
    """Rewrites directory by directory, then puts a new log in the old one's place, then removes what it replaced.

    A table without a log is what its directory holds, so there the directory itself is replaced.
    """
    recover(directory)
    log = directory / LOG
    if not log.is_dir():
        return _without_log(spark, directory, target)
    before = logged_files(log)
    require_there(directory, before)
    groups: dict[Path, list[Path]] = defaultdict(list)
    for file in before:
        groups[file.parent].append(file)
    after: list[Path] = []
    replaced: list[Path] = []
    for folder, files in sorted(groups.items()):
        size = sum(file.stat().st_size for file in files)
        wanted = max(1, -(-size // target))
        if len(files) <= wanted:
            after += files
            continue
        after += _rewritten(spark, folder, files, wanted)
        replaced += files
    _replace_log(log, after)
    for file in replaced:
        file.unlink()
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    return f"{directory}: {len(before)} files became {len(after)}."


def _without_log(spark: SparkSession, directory: Path, target: int) -> str:
    """Beside the table a new one is made, of new files and of links to those that stay; then they change places. A kill
    before leaves the table as it was; between the two renames it is missing, and `recover` brings it back."""
    new, old = _beside(directory)
    groups: dict[Path, list[Path]] = defaultdict(list)
    before = files_below(directory)
    for file in before:
        groups[file.parent].append(file)
    shutil.copytree(directory, new, copy_function=os.link)
    count = 0
    for folder, files in sorted(groups.items()):
        wanted = max(1, -(-sum(file.stat().st_size for file in files) // target))
        if len(files) <= wanted:
            count += len(files)
            continue
        count += len(_rewritten(spark, new / folder.relative_to(directory), files, wanted))
        for file in files:
            copy = new / file.relative_to(directory)
            copy.unlink()
            (copy.parent / f".{copy.name}.crc").unlink(missing_ok=True)
    directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old)
    return f"{directory}: {len(before)} files became {count}."


def _beside(directory: Path) -> tuple[Path, Path]:
    return directory.with_name(f".{directory.name}.compacting"), directory.with_name(f".{directory.name}.replaced")


def recover_tables(sinks: Iterable[Sink]) -> None:
    """Before a pipeline writes: Spark would begin a new log beside one that was left aside, and forget its files."""
    for sink in sinks:
        if isinstance(sink, FileSink) and sink.kind == "parquet" and "://" not in sink.path:
            recover(Path(sink.path))


def recover(directory: Path) -> None:
    """Finishes the change of logs that a killed compaction left in the middle."""
    old, log = directory / f"{LOG}.old", directory / LOG
    if old.is_dir() and not log.is_dir():
        old.rename(log)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(directory / f"{LOG}.new", ignore_errors=True)
    shutil.rmtree(directory / "_compacting", ignore_errors=True)
    new, replaced = _beside(directory)
    if replaced.is_dir() and not directory.exists():
        (new if new.is_dir() else replaced).rename(directory)
    for leftover in (new, replaced):
        shutil.rmtree(leftover, ignore_errors=True)


def logged_files(log: Path) -> list[Path]:
    """The files of a table as its log has them: what killed batches left beside them does not count."""
    return [
        Path(unquote(urlparse(json.loads(line)["path"]).path))
        for number in _valid_batches(log)
        for line in _log_file(log, number).read_text().splitlines()[1:]
    ]


def require_there(directory: Path, files: list[Path]) -> None:
    """Paths in a log are absolute. Of a table that was moved, every file would look like one that is in no log."""
    missing = next((each for each in files if not each.exists()), None)
    if missing is not None:
        raise CommandFailed(
            f"{directory}: its log names {missing}, which is not there: was the table moved, or a file removed? "
            "Nothing was changed. Move it back, or copy its rows to a new table."
        )


def _valid_batches(log: Path) -> list[int]:
    numbers = [int(each.name.removesuffix(".compact")) for each in log.iterdir() if not each.name.startswith(".")]
    newest = max(numbers, default=-1)
    first = max(0, (newest + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1)
    return list(range(first, newest + 1))


def _log_file(log: Path, number: int) -> Path:
    is_compact = (number + 1) % COMPACT_INTERVAL == 0
    return log / (f"{number}.compact" if is_compact else str(number))


def _replace_log(log: Path, files: list[Path]) -> None:
    """The same batches, with all files in the first of them: Spark goes on counting where it was."""
    new, old = log.with_name(f"{LOG}.new"), log.with_name(f"{LOG}.old")
    new.mkdir()
    first, *rest = _valid_batches(log)
    lines = "\n".join(["v1", *(json.dumps(_entry(file)) for file in files)])
    _log_file(new, first).write_text(lines)
    for number in rest:
        _log_file(new, number).write_text("v1")
    log.rename(old)
    new.rename(log)
    shutil.rmtree(old)


def _entry(file: Path) -> dict[str, Any]:
    there = file.stat()
    return {
        "path": f"file://{quote(str(file), safe='/=')}",
        "size": there.st_size,
        "isDir": False,
        "modificationTime": int(there.st_mtime * 1000),
        "blockReplication": 1,
        "blockSize": 33554432,
        "action": "add",
    }


def _rewritten(spark: SparkSession, folder: Path, files: list[Path], wanted: int) -> list[Path]:
    root = folder
    while "=" in root.name:
        root = root.parent
    work = root / "_compacting" / uuid.uuid4().hex
    rows = read_all_columns(spark, *map(str, files))
    rows.coalesce(wanted).write.parquet(str(work))
    made: list[Path] = []
    for file in sorted(work.glob("*.parquet")):
        made.append(file.rename(folder / f"compacted-{uuid.uuid4().hex}-{len(made):05d}.parquet"))
    shutil.rmtree(work.parent)
    return made


def read_all_columns(spark: SparkSession, *paths: str) -> DataFrame:
    """Each Parquet file has the columns that its batch had. Without this Spark takes those of one of them, and leaves
    out what the others have more."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return spark.read.option("mergeSchema", "true").parquet(*paths)
    except (PySparkException, Py4JJavaError) as error:
        told = f"{os.path.dirname(paths[0])}: its files cannot be read together: {causes.sentence(str(error))}"
        raise CommandFailed(told) from None


def files_below(directory: Path) -> list[Path]:
    return sorted(
        path
        for path in directory.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(directory).parts)
    )
