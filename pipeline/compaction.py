"""Few large files of many small ones: Delta and Iceberg have means of their own, Parquet gets a new file log."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlparse

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.sinks.files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "_spark_metadata"
COMPACT_INTERVAL = 10  # Spark's own default: every tenth file of the log holds all before it


def compact(spark: SparkSession, table: str, *, target_file_bytes: int) -> str:
    """What was done, in a sentence."""
    if "/" not in table and "." in table and not Path(table).exists():
        return _iceberg(spark, table, target_file_bytes)
    directory = Path(local_path(table))
    if "://" in table or (directory / "_delta_log").is_dir():
        return _delta(spark, local_path(table), target_file_bytes)
    if not directory.is_dir():
        raise CommandFailed(f"There is no table {table}.", code=ExitCode.NOT_FOUND)
    return _parquet(spark, directory, target_file_bytes)


def _iceberg(spark: SparkSession, table: str, target: int) -> str:
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
    """Rewrites directory by directory, then puts a new log in the old one's place, then removes what it replaced."""
    recover(directory)
    log = directory / LOG
    before = logged_files(log) if log.is_dir() else _files_below(directory)
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
    if log.is_dir():
        _replace_log(log, after)
    for file in replaced:
        file.unlink()
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    return f"{directory}: {len(before)} files became {len(after)}."


def recover(directory: Path) -> None:
    """Finishes the change of logs that a killed compaction left in the middle."""
    old, log = directory / f"{LOG}.old", directory / LOG
    if old.is_dir() and not log.is_dir():
        old.rename(log)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(directory / f"{LOG}.new", ignore_errors=True)
    shutil.rmtree(directory / "_compacting", ignore_errors=True)


def logged_files(log: Path) -> list[Path]:
    """The files of a table as its log has them: what killed batches left beside them does not count."""
    return [
        Path(unquote(urlparse(json.loads(line)["path"]).path))
        for number in _valid_batches(log)
        for line in _log_file(log, number).read_text().splitlines()[1:]
    ]


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
    rows = spark.read.parquet(*map(str, files))
    rows.coalesce(wanted).write.parquet(str(work))
    made: list[Path] = []
    for file in sorted(work.glob("*.parquet")):
        made.append(file.rename(folder / f"compacted-{uuid.uuid4().hex}-{len(made):05d}.parquet"))
    shutil.rmtree(work.parent)
    return made


def _files_below(directory: Path) -> list[Path]:
    return sorted(
        path for path in directory.rglob("*.parquet") if not any(part.startswith(("_", ".")) for part in path.parts)
    )
