"""Microseconds per append and read of one log, and what an empty partition costs. Run: python bench/micro_storage.py"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage import Log, LogConfig, LogDirectory

ROUNDS = 5


def median_us(run: Callable[[], int]) -> float:
    """The median over some rounds of the time per operation; `run` does many and says how many."""
    figures = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        count = run()
        figures.append((time.perf_counter_ns() - began) / count / 1000)
    return statistics.median(figures)


def small_batch(*, producer_id: int = -1, sequence: int = -1) -> bytearray:
    epoch = 0 if producer_id >= 0 else -1
    record = Record(timestamp=1_700_000_000_000, value=b"x" * 100)
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def fresh_log(parent: str, name: str) -> Log:
    return Log.open(os.path.join(parent, name), config=LogConfig(), clean=True)


def bench_raw_write(parent: str, count: int) -> float:
    """What the write(2) alone costs: the floor under every append."""
    batch = small_batch()
    fd = os.open(os.path.join(parent, "raw"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def run() -> int:
        for _ in range(count):
            os.write(fd, batch)
        return count

    try:
        return median_us(run)
    finally:
        os.close(fd)


def bench_append(parent: str, count: int) -> float:
    log = fresh_log(parent, "append-0")
    batch = small_batch()
    header = read_header(batch)

    def run() -> int:
        for _ in range(count):
            log.append(batch, header, leader_epoch=1, now_ms=0)
        return count

    return median_us(run)


def bench_append_idempotent(parent: str, count: int) -> float:
    log = fresh_log(parent, "idempotent-0")
    batches = [small_batch(producer_id=9, sequence=sequence) for sequence in range(count * ROUNDS)]
    headers = [read_header(batch) for batch in batches]
    state = {"next": 0}

    def run() -> int:
        first = state["next"]
        for batch, header in zip(batches[first : first + count], headers[first : first + count], strict=True):
            log.append(batch, header, leader_epoch=1, now_ms=0)
        state["next"] = first + count
        return count

    return median_us(run)


def filled_log(parent: str, count: int) -> Log:
    log = fresh_log(parent, f"read-{count}")
    batch = small_batch()
    header = read_header(batch)
    for _ in range(count):
        log.append(batch, header, leader_epoch=1, now_ms=0)
    return log


def bench_read_sequential(parent: str, count: int) -> float:
    """A reader that takes 64 KB at a time and goes on where it was cut."""
    log = filled_log(parent, count)
    size = len(small_batch())

    def run() -> int:
        offset = reads = 0
        while offset < log.end_offset:
            slices = log.read(offset=offset, limit_bytes=64 << 10)
            offset += slices[0].length // size
            reads += 1
        return reads

    return median_us(run)


def bench_read_tail(parent: str, count: int) -> float:
    """A reader at the end: each append is read at once."""
    log = fresh_log(parent, "tail-0")
    batch = small_batch()
    header = read_header(batch)

    def run() -> int:
        spent = 0
        for _ in range(count):
            offset = log.append(batch, header, leader_epoch=1, now_ms=0).base_offset
            began = time.perf_counter_ns()
            log.read(offset=offset, limit_bytes=1 << 20)
            spent += time.perf_counter_ns() - began
        run_spent.append(spent / count / 1000)
        return count

    run_spent: list[float] = []
    median_us(run)
    return statistics.median(run_spent)


def bench_read_random(parent: str, count: int) -> float:
    log = filled_log(parent, count + 1)

    def run() -> int:
        for step in range(2000):
            log.read(offset=step * 7919 % count, limit_bytes=64 << 10)
        return 2000

    return median_us(run)


def resident_kb() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def bench_partitions(parent: str, count: int) -> tuple[float, float, float, int]:
    path = os.path.join(parent, "many")
    directory = LogDirectory.open(path)
    for partition in range(count):
        directory.open_log("empty", partition, config=LogConfig())
    directory.close()
    before = resident_kb()
    began = time.perf_counter()
    directory = LogDirectory.open(path)
    config = LogConfig()
    directory.open_all(lambda topic, partition: config)
    opened = time.perf_counter() - began
    each_kb = (resident_kb() - before) / count
    descriptors = len(os.listdir("/proc/self/fd"))
    began = time.perf_counter()
    directory.close()
    return opened, time.perf_counter() - began, each_kb, descriptors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--directory", help="where to write; the default is the system's temporary directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as parent:
        size = len(small_batch())
        print(f"batch of {size} bytes, {options.count} operations, medians of {ROUNDS} rounds")
        print(f"write(2) alone              {bench_raw_write(parent, options.count):6.2f} µs")
        print(f"append                      {bench_append(parent, options.count):6.2f} µs")
        print(f"append, idempotent          {bench_append_idempotent(parent, options.count):6.2f} µs")
        print(f"read, sequential 64 KB      {bench_read_sequential(parent, options.count):6.2f} µs")
        print(f"read, at the tail           {bench_read_tail(parent, options.count):6.2f} µs")
        print(f"read, random                {bench_read_random(parent, options.count):6.2f} µs")
        opened, closed, each_kb, descriptors = bench_partitions(parent, 1000)
        print(f"1,000 empty partitions      opened in {opened:.3f} s, closed in {closed:.3f} s,", end=" ")
        print(f"{each_kb:.1f} KB each, {descriptors} descriptors in all")


if __name__ == "__main__":
    main()
