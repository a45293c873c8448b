"""What the storage tests share: batches to write, logs to write them to, a disk that fails, and Kafka's own tools."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tidemark.protocol.records import BatchHeader, Record, build_batch, iter_batches, read_header
from tidemark.storage import Files, Log, LogConfig, LogDirectory, job_for, measure, swap
from tidemark.storage.cleaning.clean import clean

ROOT = Path(__file__).parents[2]
JARS = ROOT / ".cache" / "jars"
PAGE = 4096
T0 = 1_700_000_000_000


class Node:
    """A file as the disk knows it: what is on the platter, and whether it was ever synced."""

    def __init__(self) -> None:
        self.durable = b""
        self.last: bytes | None = None  # the content when it was unlinked


class FaultyFiles(Files):
    """Files over a real directory that remembers what a power cut would leave.

    A file keeps what was synced, plus any prefix of what was appended since, with any of the unsynced pages missing.
    Names (creations, renames, removals) survive in order: all that a directory sync covered, and some of the rest.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = str(root)
        self.room: int | None = None  # bytes until the disk is full
        self.fail_truncate = False
        self.fail_sync = False
        self.fail_open = 0  # the errno
        self.lose_syncs = False
        self._nodes: dict[int, Node] = {}
        self._names: list[tuple[str, ...]] = []
        self._linked: dict[tuple[int, str], Node] = {}
        self._durable_names = 0

    # What storage calls

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        if self.room is None:
            return os.write(fd, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "the disk is full")
        written = os.write(fd, memoryview(data)[: self.room])
        self.room -= written
        return written

    def truncate(self, fd: int, size: int) -> None:
        if self.fail_truncate:
            raise OSError(errno.EIO, "truncation failed")
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        if self.fail_sync:
            raise OSError(errno.EIO, "sync failed")
        if not self.lose_syncs:
            node = self._nodes.get(os.fstat(fd).st_ino)
            if node is not None:
                node.durable = self._content(fd)

    def open_descriptor(self, path: str, flags: int) -> int:
        if self.fail_open:
            raise OSError(self.fail_open, os.strerror(self.fail_open))
        fresh = bool(flags & os.O_CREAT) and not os.path.exists(path)
        fd = super().open_descriptor(path, flags)
        if fresh:
            node = self._nodes[os.fstat(fd).st_ino] = Node()
            self._linked[len(self._names), path] = node
            self._names.append(("link", path))
        return fd

    def rename(self, source: str, target: str) -> None:
        if os.path.isfile(target):
            self._forget(target)
        super().rename(source, target)
        self._names.append(("rename", source, target))

    def remove(self, path: str) -> None:
        if os.path.exists(path):
            self._forget(path)
            self._names.append(("unlink", path))
        super().remove(path)

    def make_directory(self, path: str) -> bool:
        made = super().make_directory(path)
        if made:
            self._names.append(("mkdir", path))
        return made

    def sync_directory(self, path: str) -> None:
        if self.fail_sync:
            raise OSError(errno.EIO, "sync failed")
        if not self.lose_syncs:
            self._durable_names = len(self._names)

    # What the test calls

    def adopt(self) -> None:
        """Counts the files that are there as synced, as after a restart of the machine."""
        for folder, _, names in os.walk(self.root):
            self._names.append(("mkdir", folder))
            for name in names:
                path = os.path.join(folder, name)
                node = self._nodes[os.stat(path).st_ino] = Node()
                node.durable = Path(path).read_bytes()
                self._linked[len(self._names), path] = node
                self._names.append(("link", path))
        self._durable_names = len(self._names)

    def power_cut(self, random: Random, target: Path) -> None:
        """Writes to `target` what the disk might hold if the power failed now."""
        survived = random.randint(self._durable_names, len(self._names))
        files: dict[str, Node] = {}
        directories: set[str] = set()
        for number, (what, *paths) in enumerate(self._names[:survived]):
            if what == "link":
                files[paths[0]] = self._linked[number, paths[0]]
            elif what == "unlink":
                files.pop(paths[0], None)
            elif what == "mkdir":
                directories.add(paths[0])
            elif paths[0] in directories:
                directories = {_moved(each, *paths) for each in directories}
                files = {_moved(path, *paths): node for path, node in files.items()}
            elif paths[0] in files:
                files[paths[1]] = files.pop(paths[0])
        target.mkdir(parents=True, exist_ok=True)
        for directory in sorted(directories):
            (target / os.path.relpath(directory, self.root)).mkdir(parents=True, exist_ok=True)
        current = self._current_contents()
        for path, node in sorted(files.items()):
            content = node.last if node.last is not None else current.get(id(node), b"")
            place = target / os.path.relpath(path, self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(survivor(random, durable=node.durable, content=content))

    def _current_contents(self) -> dict[int, bytes]:
        found = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                node = self._nodes.get(os.stat(path).st_ino)
                if node is not None:
                    found[id(node)] = Path(path).read_bytes()
        return found

    def _forget(self, path: str) -> None:
        node = self._nodes.pop(os.stat(path).st_ino, None)
        if node is not None:
            node.last = Path(path).read_bytes()

    @staticmethod
    def _content(fd: int) -> bytes:
        return Path(f"/proc/self/fd/{fd}").read_bytes()


def _moved(path: str, source: str, target: str) -> str:
    """Where a file or directory is after `source` was renamed."""
    inside = path == source or path.startswith(source + os.sep)
    return target + path[len(source) :] if inside else path


def survivor(random: Random, *, durable: bytes, content: bytes) -> bytes:
    """What may be left of a file that held `durable` when it was synced and `content` when the power failed."""
    if not content.startswith(durable):
        return random.choice([durable, content])
    end = random.choice([len(durable), len(content), random.randint(len(durable), len(content))])
    left = bytearray(content[:end])
    if random.random() < 0.5:
        for page in range(len(durable) // PAGE, end // PAGE + 1):
            if random.random() < 0.3:
                first, last = max(page * PAGE, len(durable)), min((page + 1) * PAGE, end)
                left[first:last] = bytes(max(last - first, 0))
    return bytes(left)


@pytest.fixture(scope="session")
def faulty_files() -> type[FaultyFiles]:
    return FaultyFiles


class Batches:
    """Makes batches as a client would send them, with contents that never repeat and hold no runs of zeros."""

    def __init__(self) -> None:
        self._random = Random(7)

    def __call__(
        self,
        count: int = 1,
        *,
        timestamp: int = T0,
        size: int = 20,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = -1,
        compression: int = 0,
        transactional: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
        timestamp_type: int = 0,
    ) -> bytearray:
        records = [
            Record(timestamp=timestamp + n, key=b"k%d" % n, value=bytes(self._random.choices(range(1, 256), k=size)))
            for n in range(count)
        ]
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            compression=compression,
            transactional=transactional,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            timestamp_type=timestamp_type,
        )


@pytest.fixture(scope="session")
def make_batch() -> Batches:
    return Batches()


Append = Callable[[Log, bytearray], "object"]


def append_batch(log: Log, batch: bytearray, *, leader_epoch: int = 0, now_ms: int = T0):
    return log.append(batch, read_header(batch), leader_epoch=leader_epoch, now_ms=now_ms)


@pytest.fixture(scope="session")
def append():
    return append_batch


def batches_of(
    log: Log, *, offset: int | None = None, limit_bytes: int = 1 << 20
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of a log, read as a consumer reads: slice by slice."""
    at = log.start_offset if offset is None else offset
    while at < log.end_offset:
        slices = log.read(offset=at, limit_bytes=limit_bytes)
        if not slices:
            return
        for part in slices:
            data = os.pread(part.file.fileno(), part.length, part.position)
            assert len(data) == part.length
            for header, view in iter_batches(data):
                yield header, bytes(view)
                at = header.next_offset


@pytest.fixture(scope="session")
def read_batches():
    return batches_of


def compact(log: Log, *, now_ms: int = T0, cleaned_up_to: int = 0) -> None:
    """One cleaning of all that may be cleaned."""
    log.flush()
    dirtiness = measure(log, cleaned_up_to=cleaned_up_to, high_watermark=log.end_offset, now_ms=now_ms)
    cleaning = clean(job_for(log, dirtiness, now_ms=now_ms, map_bytes=1 << 20, hash_seed=9), files=log.files)
    for cleaned in cleaning:
        swap(log, cleaned)


@pytest.fixture(scope="session")
def compact_log():
    return compact


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    """Opens logs in the test's own directory, by default with small segments and a clock that stands still."""
    opened: list[Log] = []

    def open_(name: str = "topic-0", *, clean: bool = True, config: LogConfig | None = None, **more: object) -> Log:
        settings = config or LogConfig(segment_bytes=4000, index_interval_bytes=200)
        more.setdefault("now_ms", lambda: T0)
        log = Log.open(str(tmp_path / name), config=settings, clean=clean, **more)  # type: ignore[arg-type]
        opened.append(log)
        return log

    yield open_
    for log in opened:
        if not log.is_offline:
            log.close(clean=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of the log directory that `open_directory` opens."""
    return tmp_path / "data"


@pytest.fixture
def open_directory(path: Path) -> Iterator[Callable[..., LogDirectory]]:
    opened: list[LogDirectory] = []

    def open_(files: Files | None = None) -> LogDirectory:
        directory = LogDirectory.open(str(path), files=files, now_ms=lambda: T0)
        opened.append(directory)
        return directory

    yield open_
    for directory in opened:
        directory.close(clean=False)


@pytest.fixture(scope="session")
def jars() -> str:
    """The class path of Apache Kafka."""
    if not list(JARS.glob("kafka-tools-*.jar")):
        pytest.fail(f"Apache Kafka's jars are not in {JARS.relative_to(ROOT)}: run `make jars`")
    return f"{JARS}/*"


@pytest.fixture(scope="session")
def dump(jars: str) -> Callable[..., tuple[str, list[str]]]:
    """Runs Apache Kafka's DumpLogSegments over all files of partition directories: its output and its complaints."""

    def run(*directories: Path, options: tuple[str, ...] = ()) -> tuple[str, list[str]]:
        suffixes = {".log", ".index", ".timeindex", ".snapshot", ".txnindex"}
        paths = [str(path) for folder in directories for path in sorted(folder.iterdir()) if path.suffix in suffixes]
        # A short run is quickest without the second compiler and a parallel collector.
        java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars]
        command = [*java, "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(paths)]
        result = subprocess.run(command, capture_output=True, timeout=120, check=False)
        output, errors = result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")
        assert result.returncode == 0, errors
        return output, complaints(errors)

    return run


def complaints(errors: str) -> list[str]:
    """What the tool finds wrong. It reports each segment's first offset as following -1, on its own logs too."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return [
        line
        for line in lines
        if not line.startswith(("Non-consecutive offsets in", "-1 is followed by", "SLF4J", "WARNING", "ERROR Status"))
    ]
