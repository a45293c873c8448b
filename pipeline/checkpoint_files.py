"""The files of a checkpoint, wherever it is: in a directory of this machine, or where only Spark can reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidemark.failure import CommandFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointFiles(Protocol):
    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing if there is none."""

    def read(self, file: str) -> str | None:
        """None if it is missing."""

    def write(self, file: str, text: str) -> None:
        """As a whole or not at all, in the place of what was there."""

    def remove(self, file: str) -> None: ...


class LocalFiles:
    """On this machine, or mounted on it."""

    def names(self, directory: str) -> list[str]:
        return [each.name for each in Path(directory).iterdir()] if Path(directory).is_dir() else []

    def read(self, file: str) -> str | None:
        return Path(file).read_text(errors="replace") if Path(file).exists() else None

    def write(self, file: str, text: str) -> None:
        place = Path(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.new")
        temporary.write_text(text)
        temporary.replace(place)

    def remove(self, file: str) -> None:
        place = Path(file)
        place.with_name(f".{place.name}.crc").unlink(missing_ok=True)  # Spark's checksum of it
        place.unlink()


class UnreachableFiles:
    """Elsewhere, and without a session of Spark's: nothing is known, and nothing kept."""

    def names(self, directory: str) -> list[str]:
        del directory
        return []

    def read(self, file: str) -> str | None:
        del file
        return None

    def write(self, file: str, text: str) -> None: ...

    def remove(self, file: str) -> None: ...


class SparkFiles:
    """In an object store, HDFS or the like, by the ways that Spark has its own checkpoints there."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def names(self, directory: str) -> list[str]:
        with self._store(directory) as (store, path):
            return [each.getPath().getName() for each in store.listStatus(path)] if store.exists(path) else []

    def read(self, file: str) -> str | None:
        with self._store(file) as (store, path):
            if not store.exists(path):
                return None
            stream = store.open(path)
            try:
                return bytes(stream.readAllBytes()).decode(errors="replace")
            finally:
                stream.close()

    def write(self, file: str, text: str) -> None:
        jvm: Any = self._spark._jvm
        streaming = jvm.org.apache.spark.sql.execution.streaming.checkpointing
        with self._store(file) as (store, path):
            store.mkdirs(path.getParent())
            stream = streaming.CheckpointFileManager.create(path.getParent(), store.getConf()).createAtomic(path, True)
            stream.write(text.encode())
            stream.close()

    def remove(self, file: str) -> None:
        with self._store(file) as (store, path):
            store.delete(path, False)

    @contextmanager
    def _store(self, place: str) -> Iterator[tuple[Any, Any]]:
        from py4j.protocol import Py4JJavaError

        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(place)
        try:
            yield path.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf()), path
        except Py4JJavaError as error:
            raise CommandFailed(f"The checkpoint cannot be used: {place}: {error.java_exception.toString()}.") from None


def files_at(location: str, spark: SparkSession | None) -> CheckpointFiles:
    if "://" not in location:
        return LocalFiles()
    return UnreachableFiles() if spark is None else SparkFiles(spark)
