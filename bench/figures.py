"""What is measured, in which unit, and where Tidemark must be: one table."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`goal` is a ratio Tidemark / Apache Kafka (at least, or at most where lower is better), unless `absolute`."""

    title: str
    unit: str
    higher_is_better: bool
    goal: float | None = None
    absolute: bool = False

    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        sign = "≥" if self.higher_is_better else "≤"
        if self.absolute:
            return f"{sign} {self.goal:,g} {self.unit}"
        whole = round(1 / self.goal)
        return f"{sign} 1/{whole}" if self.goal < 0.5 else f"{sign} {_short(self.goal)}"

    def met(self, *, tidemark: float, kafka: float | None) -> bool | None:
        """None where there is no goal, or nothing to compare with."""
        if self.goal is None or (kafka is None and not self.absolute):
            return None
        value = tidemark if self.absolute or kafka is None else tidemark / kafka
        return value >= self.goal if self.higher_is_better else value <= self.goal


def _short(goal: float) -> str:
    return f"{goal:.1f}" if goal == round(goal, 1) else f"{goal:g}"


def _rate(title: str, goal: float) -> Figure:
    return Figure(title=title, unit="MB/s", higher_is_better=True, goal=goal)


def _cpu(title: str, goal: float) -> Figure:
    return Figure(title=title, unit="CPU s/GB", higher_is_better=False, goal=goal)


def _group_start(case: str, *, protocol: str) -> dict[str, Figure]:
    titles = {f"{case}.n{members}": f"{members} consumers to a stable group, {protocol}" for members in (1, 10, 100)}
    return {
        name: Figure(title=title.replace("1 consumers", "1 consumer"), unit="s", higher_is_better=False, goal=1.0)
        for name, title in titles.items()
    }


def _steady(case: str, title: str) -> dict[str, Figure]:
    """The middle is told too, but the goal is about the worst record of a thousand. On a virtual machine that one may
    be the hypervisor's doing: so it is also told for the time in which that took nothing (`calm.py`)."""
    return {
        f"{case}.p50": Figure(title=f"{title}: p50", unit="ms", higher_is_better=False),
        f"{case}.p99": Figure(title="… p99", unit="ms", higher_is_better=False),
        f"{case}.p999": Figure(title="… p99.9", unit="ms", higher_is_better=False, goal=0.5),
        f"{case}.calm_p999": Figure(title="… p99.9, nothing stolen", unit="ms", higher_is_better=False, goal=0.5),
    }


FIGURES: dict[str, Figure] = {
    "produce-1k.rate": _rate("produce 1 KB", 1.0),
    "produce-1k.cpu": _cpu("produce 1 KB, broker CPU", 0.8),
    "produce-100.rate": _rate("produce 100 B", 1.0),
    "produce-100.cpu": _cpu("produce 100 B, broker CPU", 0.8),
    "consume-1k.rate": _rate("consume 1 KB", 1.0),
    "consume-1k.cpu": _cpu("consume 1 KB, broker CPU", 0.8),
    "consume-100.rate": _rate("consume 100 B", 1.0),
    "consume-100.cpu": _cpu("consume 100 B, broker CPU", 0.8),
    "small.rate": Figure(title="small requests", unit="requests/s", higher_is_better=True, goal=2.0),
    "small.per_cpu": Figure(
        title="small requests per broker CPU", unit="requests/CPU s", higher_is_better=True, goal=3.0
    ),
    "small.cpu_us": Figure(
        title="small request, broker CPU", unit="µs", higher_is_better=False, goal=40, absolute=True
    ),
    "acl-small.rate": Figure(
        title="a thousand ACLs: small requests", unit="requests/s", higher_is_better=True, goal=1.0
    ),
    "acl-small.cpu_us": Figure(
        title="a thousand ACLs: small request, broker CPU", unit="µs", higher_is_better=False, goal=1.0
    ),
    "quota-small.rate": Figure(title="quotas: small requests", unit="requests/s", higher_is_better=True, goal=1.0),
    "quota-small.cpu_us": Figure(
        title="quotas: small request, broker CPU", unit="µs", higher_is_better=False, goal=1.0
    ),
    "quota-small.without_us": Figure(title="… the same load without quotas", unit="µs", higher_is_better=False),
    "quota-small.added_us": Figure(
        title="… what quotas add", unit="µs", higher_is_better=False, goal=2.0, absolute=True
    ),
    "tls-produce-1k.rate": _rate("TLS: produce 1 KB", 1.0),
    "tls-produce-1k.cpu": _cpu("TLS: produce 1 KB, broker CPU", 1.0),
    "tls-consume-1k.rate": _rate("TLS: consume 1 KB", 1.0),
    "tls-consume-1k.cpu": _cpu("TLS: consume 1 KB, broker CPU", 1.0),
    "tls-small.rate": Figure(title="TLS: small requests", unit="requests/s", higher_is_better=True, goal=1.0),
    "tls-small.cpu_us": Figure(title="TLS: small request, broker CPU", unit="µs", higher_is_better=False, goal=1.0),
    "tls-latency.p50": Figure(title="TLS: one message end to end, p50", unit="ms", higher_is_better=False, goal=1.0),
    "tls-latency.p99": Figure(title="TLS: one message end to end, p99", unit="ms", higher_is_better=False, goal=1.0),
    "tls-handshakes.rate": Figure(title="TLS: new connections", unit="handshakes/s", higher_is_better=True, goal=1.0),
    "tls-handshakes.cpu_us": Figure(title="TLS: handshake, broker CPU", unit="µs", higher_is_better=False, goal=1.0),
    **_group_start("group-start", protocol="classic"),
    **_group_start("group-start-848", protocol="consumer"),
    "group-recover.time": Figure(
        title="group of 10 whole again after a session ends", unit="s", higher_is_better=False, goal=1.0
    ),
    "group-commit.sync": Figure(title="offset commits, synchronous", unit="commits/s", higher_is_better=True, goal=0.7),
    "group-commit.sync_cpu": Figure(title="the same, broker CPU", unit="µs/commit", higher_is_better=False),
    "group-commit.async": Figure(
        title="offset commits, asynchronous", unit="commits/s", higher_is_better=True, goal=0.7
    ),
    "group-commit.async_cpu": Figure(title="the same, broker CPU", unit="µs/commit", higher_is_better=False),
    "group-idle.cpu": Figure(title="CPU, 1,000 idle groups", unit="ms/s", higher_is_better=False, goal=0.5),
    "group-idle.rss": Figure(title="memory, 1,000 idle groups", unit="MiB", higher_is_better=False, goal=0.5),
    "group-idle.growth": Figure(title="memory that they added", unit="MiB", higher_is_better=False, goal=0.5),
    "txn-small.one": Figure(
        title="transactions of 10 records, 1 producer", unit="transactions/s", higher_is_better=True, goal=1.0
    ),
    "txn-small.one_cpu": Figure(title="the same, broker CPU", unit="µs each", higher_is_better=False),
    "txn-small.eight": Figure(
        title="transactions of 10 records, 8 producers", unit="transactions/s", higher_is_better=True, goal=1.0
    ),
    "txn-small.eight_cpu": Figure(title="the same, broker CPU", unit="µs each", higher_is_better=False),
    "txn-commit.p50": Figure(title="commit of a transaction, p50", unit="ms", higher_is_better=False, goal=1.0),
    "txn-commit.p99": Figure(title="commit of a transaction, p99", unit="ms", higher_is_better=False, goal=1.0),
    "txn-large.rate": _rate("produce 1 KB in large transactions", 1.0),
    "txn-large.share": Figure(title="the same, of plain acks=all", unit="of 1", higher_is_better=True),
    "txn-read.committed": _rate("consume read_committed, 10 % aborted", 1.0),
    "txn-read.committed_cpu": _cpu("the same, broker CPU", 1.0),
    "txn-read.uncommitted": _rate("consume read_uncommitted, the same data", 1.0),
    "txn-read.share": Figure(title="read_committed, of read_uncommitted", unit="of 1", higher_is_better=True),
    "spark-read.connector": _rate("Spark's connector reads 1 KB records", 1.0),
    "spark-read.connector_cpu": _cpu("the same, broker CPU", 0.8),
    "spark-read.tuned": _rate("the connector with large fetches", 1.0),
    "spark-read.tuned_cpu": _cpu("the same, broker CPU", 0.8),
    "spark-read.files": Figure(title='format("tidemark"), files', unit="MB/s", higher_is_better=True),
    "spark-read.files_cpu": Figure(title="the same, broker CPU", unit="CPU s/GB", higher_is_better=False),
    "spark-read.files_share": Figure(
        title="the same, of the connector's rate", unit="of 1", higher_is_better=True, goal=2.0, absolute=True
    ),
    "spark-read.protocol": Figure(title='format("tidemark"), protocol', unit="MB/s", higher_is_better=True),
    "spark-read.protocol_cpu": Figure(title="the same, broker CPU", unit="CPU s/GB", higher_is_better=False),
    "spark-read.protocol_share": Figure(title="the same, of the connector's rate", unit="of 1", higher_is_better=True),
    "spark-clickstream.rate": Figure(
        title="the clickstream pipeline, a backlog", unit="records/s", higher_is_better=True, goal=1.0
    ),
    "spark-clickstream.cpu": Figure(title="the same, broker CPU", unit="CPU s/million", higher_is_better=False),
    "spark-clickstream.latency": Figure(
        title="an event to its count in a topic, p50", unit="s", higher_is_better=False, goal=1.0
    ),
    "spark-upsert.rate": Figure(
        title="changes merged into a Delta table", unit="records/s", higher_is_better=True, goal=1.0
    ),
    "spark-upsert.cpu": Figure(title="the same, broker CPU", unit="CPU s/million", higher_is_better=False),
    "pipeline-tests.rate": Figure(
        title="cases of a pipeline, after the first", unit="per minute", higher_is_better=True
    ),
    "pipeline-tests.first": Figure(title="the first case, with Spark's start", unit="s", higher_is_better=False),
    "latency.p50": Figure(title="end to end, p50", unit="ms", higher_is_better=False, goal=0.8),
    "latency.p99": Figure(title="end to end, p99", unit="ms", higher_is_better=False, goal=1.0),
    "start.ready": Figure(title="start to first Metadata", unit="s", higher_is_better=False, goal=1 / 8),
    "start.cpu": Figure(title="start, CPU", unit="CPU s", higher_is_better=False),
    "idle.rss": Figure(title="memory, idle", unit="MiB", higher_is_better=False, goal=1 / 6),
    "idle.cpu": Figure(title="CPU, idle", unit="ms/s", higher_is_better=False),
    "memory.rss": Figure(title="memory, after load", unit="MiB", higher_is_better=False),
    "connections.held": Figure(
        title="idle connections held", unit="connections", higher_is_better=True, goal=5000, absolute=True
    ),
    "connections.rss": Figure(title="memory per idle connection", unit="KiB", higher_is_better=False),
    "connections.produce": Figure(title="produce while they are held", unit="ms", higher_is_better=False),
    **_steady("steady-alone", "1,000 records/s, alone"),
    **_steady("steady-cold", "… beside a cold read of 4 GB"),
    "steady-cold.rate": Figure(title="… the cold read", unit="MB/s", higher_is_better=True),
    **_steady("steady-disk", "… while two producers fill the disk"),
    "steady-disk.rate": Figure(title="… these two", unit="MB/s", higher_is_better=True),
    **_steady("steady-create", "… while 10,000 partitions are made"),
    "steady-create.time": Figure(title="… all made and led", unit="s", higher_is_better=False),
    **_steady("steady-catch-up", "… while a follower catches up, three nodes"),
    "steady-catch-up.time": Figure(title="… in sync again", unit="s", higher_is_better=False),
    "sustained.rate": _rate("produce 3 GB in batches of 1 MB, acks=1", 1.25),
    "sustained.cpu": Figure(title="… broker CPU", unit="CPU s/GB", higher_is_better=False),
    "sustained.per_cpu": Figure(title="… per broker CPU", unit="MB/CPU s", higher_is_better=True, goal=1.5),
    "cluster-produce.rate": _rate("three nodes: produce 1 KB, acks=all", 1.0),
    "cluster-produce.cpu": Figure(title="the same, CPU of all three", unit="CPU s/GB", higher_is_better=False),
    "cluster-acks.p50": Figure(title="acknowledgement by all, p50", unit="ms", higher_is_better=False),
    "cluster-acks.p99": Figure(title="acknowledgement by all, p99", unit="ms", higher_is_better=False, goal=1.0),
    "cluster-failover.gap": Figure(
        title="longest silence when a leader is killed", unit="s", higher_is_better=False, goal=1 / 5
    ),
    "cluster-catch-up.time": Figure(
        title="a follower that missed 1 GB in sync again", unit="s", higher_is_better=False
    ),
    "cluster-idle.cpu": Figure(
        title="CPU of three nodes, 1,000 idle partitions", unit="ms/s", higher_is_better=False, goal=1.0
    ),
    "cluster-idle.rss": Figure(title="memory of the same", unit="MiB", higher_is_better=False),
    **{
        f"cluster-many.{name}": Figure(title=title, unit=unit, higher_is_better=False)
        for name, title, unit in (
            ("create", "1,000 topics, 10,000 partitions: created", "s"),
            ("usable", "… a record in each acknowledged", "s"),
            ("describe", "… all described", "s"),
            ("rss", "… memory per node", "MiB"),
            ("idle", "… idle CPU of three nodes", "ms/s"),
            ("failover", "… a node killed, all led again", "s"),
            ("return", "… the node started, all in sync again", "s"),
            ("stop", "… all three nodes stopped", "s"),
            ("restart", "… all three started, all in sync", "s"),
            ("restart_usable", "… and a record in each acknowledged", "s"),
        )
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A figure's rounds on one broker."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Summary":
        return cls(middle=median(values), low=min(values), high=max(values))


Rounds = dict[str, dict[str, list[float]]]
"""broker → figure → value of each round."""


def summaries(rounds: Rounds) -> dict[str, dict[str, Summary]]:
    """The same, figure first, in the table's order."""
    seen = {figure: {b: Summary.of(v[figure]) for b, v in rounds.items() if v.get(figure)} for figure in FIGURES}
    return {figure: by_broker for figure, by_broker in seen.items() if by_broker}
