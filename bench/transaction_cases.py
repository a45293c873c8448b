"""The transaction cases: many small ones, the commit alone, large ones beside plain writes, and read_committed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.brokers import Running, write_dirty_pages
from bench.cases import AT_ONCE, FETCH, LOADERS, PARTITIONS, Case, Round, Sample, Scale, fresh_name, sample
from bench.loaders.process import Load
from bench.topics import topic

SMALL = {"records": 10, "partitions": 4, "size": 100}
EIGHT = 8
PROCESSES = 2
KB = 1000
LARGE_RECORDS = 25_000  # of 1 KB: a transaction of 25 MB
READ_RECORDS = 1_000
ABORT_EVERY = 10


def _loads(
    broker: Running,
    name: str,
    parameters: Mapping[str, Any],
    *,
    producers: int,
    client: Mapping[str, Any],
    java_jars: Path | None = None,
) -> list[Load]:
    """New transactional ids each time: an old one would be fenced first, and its last transaction aborted."""
    ids = [fresh_name("txn-id") for _ in range(producers)]
    if java_jars is not None:
        ours = {"topic": name, "client": {"bootstrap.servers": broker.bootstrap}, "jars": str(java_jars), "ids": ids}
        return [Load(module="transactions_java", parameters={**ours, **parameters})]
    split = [ids[number::PROCESSES] for number in range(min(PROCESSES, producers))]
    common = {"topic": name, "client": {"bootstrap.servers": broker.bootstrap, "log_level": 2, **client}, **parameters}
    return [Load(module="transactions", parameters={**common, "ids": part}) for part in split]


def _transactions(taken: Sample) -> int:
    return sum(int(report["transactions"]) for report in taken.reports)


def _cores(case: str, taken: Sample) -> dict[str, float]:
    return {f"{case}.{who}_cores": cores for who, cores in taken.cores.items()}


@contextmanager
def _small(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("txn-small"), partitions=4) as name:

        def one_round() -> dict[str, float]:
            figures: dict[str, float] = {}
            for key, producers in {"one": 1, "eight": EIGHT}.items():
                load = {**SMALL, "seconds": scale.txn_s, "warm_up": 10}
                jars = scale.java_jars
                loads = _loads(broker, name, load, producers=producers, client=AT_ONCE, java_jars=jars)
                taken = sample(broker, loads)
                count = _transactions(taken)
                figures[f"txn-small.{key}"] = count / taken.wall_s
                figures[f"txn-small.{key}_cpu"] = 1e6 * taken.cpu_s / count
                figures |= _cores(f"txn-small.{key}", taken)
            return figures

        yield one_round


@contextmanager
def _commit(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("txn-commit"), partitions=4) as name:
        load = {**SMALL, "transactions": scale.txn_commits, "warm_up": 50, "flush_first": True}

        def one_round() -> dict[str, float]:
            loads = _loads(broker, name, load, producers=1, client=AT_ONCE, java_jars=scale.java_jars)
            taken = sample(broker, loads)
            (report,) = taken.reports
            figures = {"txn-commit.p50": report["p50_ms"], "txn-commit.p99": report["p99_ms"]}
            return figures | _cores("txn-commit", taken)

        yield one_round


@contextmanager
def _large(broker: Running, scale: Scale) -> Iterator[Round]:
    """Both halves of a round with one loader and one volume; plain means idempotent, as a transaction is, too."""

    def produce(loads: list[Load]) -> float:
        write_dirty_pages()
        taken = sample(broker, loads)
        return taken.records * KB / taken.wall_s / 1e6

    def one_round() -> dict[str, float]:
        count = max(1, scale.txn_bytes // KB // LARGE_RECORDS // LOADERS)
        load = {"records": LARGE_RECORDS, "partitions": PARTITIONS, "size": KB, "transactions": count}
        with topic(broker, fresh_name("txn-large"), partitions=PARTITIONS) as name:
            rate = produce(_loads(broker, name, load, producers=LOADERS, client={}))
        with topic(broker, fresh_name("txn-plain"), partitions=PARTITIONS) as name:
            client = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": "true"}
            plain = {"topic": name, "size": KB, "partitions": PARTITIONS, "batch": 1000, "client": client}
            plain |= {"records": count * LARGE_RECORDS, "send_first": True}
            firsts = range(0, PARTITIONS, PARTITIONS // LOADERS)
            beside = produce([Load(module="produce", parameters={**plain, "first_partition": one}) for one in firsts])
        return {"txn-large.rate": rate, "txn-large.share": rate / beside}

    yield one_round


@contextmanager
def _read(broker: Running, scale: Scale) -> Iterator[Round]:
    with topic(broker, fresh_name("txn-read"), partitions=PARTITIONS) as name:
        transactions = max(ABORT_EVERY, scale.txn_bytes // KB // READ_RECORDS // ABORT_EVERY * ABORT_EVERY)
        written = {"records": READ_RECORDS, "partitions": PARTITIONS, "size": KB, "transactions": transactions}
        sample(broker, _loads(broker, name, {**written, "abort_every": ABORT_EVERY}, producers=1, client={}))
        write_dirty_pages()
        every = [len(range(partition, READ_RECORDS, PARTITIONS)) for partition in range(PARTITIONS)]

        def read(isolation: str, *, shown: int) -> Sample:
            client = {"bootstrap.servers": broker.bootstrap, **FETCH, "isolation.level": isolation}
            shares = [list(range(PARTITIONS))[number::LOADERS] for number in range(LOADERS)]
            return sample(
                broker,
                [
                    Load(
                        module="consume",
                        parameters={
                            "topic": name, "client": client, "passes": scale.passes_1k, "partitions": share,
                            "records": shown * sum(every[partition] for partition in share),
                        },
                    )
                    for share in shares
                ],
            )  # fmt: skip

        def one_round() -> dict[str, float]:
            committed = read("read_committed", shown=transactions - transactions // ABORT_EVERY)
            uncommitted = read("read_uncommitted", shown=transactions)
            rates = [taken.records * KB / taken.wall_s / 1e6 for taken in (committed, uncommitted)]
            return {
                "txn-read.committed": rates[0],
                "txn-read.committed_cpu": committed.cpu_s / (committed.records * KB / 1e9),
                "txn-read.uncommitted": rates[1],
                "txn-read.share": rates[0] / rates[1],
                **_cores("txn-read.committed", committed),
                **_cores("txn-read.uncommitted", uncommitted),
            }

        yield one_round


TRANSACTION_CASES: dict[str, Case] = {
    "txn-small": _small,
    "txn-commit": _commit,
    "txn-large": _large,
    "txn-read": _read,
}
