"""The consumer-group cases: how soon a group is stable, how soon it recovers, commits, and what idle groups cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.brokers import Running
from bench.cases import MIB, Case, Round, Sample, Scale, fresh_name, sample
from bench.loaders.process import Load
from bench.members import member_processes
from bench.topics import standing_topic

PARTITIONS = 100
PROCESSES = 2
COMMITTING_GROUPS = 8
BEAT_S = 3.0
# A session short enough to wait for; the heartbeats are what it takes survivors to hear of a loss.
SESSION_S = 2.25
SHORT_SESSION = {"session.timeout.ms": int(1000 * SESSION_S), "heartbeat.interval.ms": 500}
SURVIVORS = 9
# A JVM may hold a thousand groups in memory that it had touched before, or give some back: no ratio to zero or less.
LEAST_GROWTH = MIB // 10

CLASSIC = {"group.protocol": "classic"}
CONSUMER = {"group.protocol": "consumer"}


def _client(broker: Running, group: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 2, **settings}


def _shares(members: int) -> list[int]:
    processes = min(members, PROCESSES)
    return [len(range(number, members, processes)) for number in range(processes)]


@contextmanager
def _start(broker: Running, scale: Scale, *, case: str, settings: dict[str, Any]) -> Iterator[Round]:
    name = standing_topic(broker, "bench-group", partitions=PARTITIONS)

    def stable_after(members: int) -> float:
        common = {"client": _client(broker, fresh_name(case), settings), "topic": name}
        with member_processes([{**common, "count": count} for count in _shares(members)]) as (_, group):
            started = group.start()
            return group.wait_until_stable(PARTITIONS) - started

    yield lambda: {f"{case}.n{members}": stable_after(members) for members in scale.group_sizes}


@contextmanager
def _recover(broker: Running, _: Scale) -> Iterator[Round]:
    name = standing_topic(broker, "bench-group", partitions=PARTITIONS)

    def one_round() -> dict[str, float]:
        client = _client(broker, fresh_name("group-recover"), {**CLASSIC, **SHORT_SESSION})
        common = {"client": client, "topic": name}
        shares = [{**common, "count": SURVIVORS}, {**common, "count": 1, "trace": True}]
        with member_processes(shares) as (processes, group):
            group.start()
            group.wait_until_stable(PARTITIONS)
            group.pump(SESSION_S / 2)
            group.lose(processes[1])
            expired = group.last_beat + SESSION_S
            return {"group-recover.time": group.wait_until_stable(PARTITIONS) - expired}

    yield one_round


@contextmanager
def _commit(broker: Running, scale: Scale) -> Iterator[Round]:
    name = standing_topic(broker, "bench-group-commit", partitions=1)
    groups = [fresh_name("group-commit") for _ in range(COMMITTING_GROUPS)]
    client = {"bootstrap.servers": broker.bootstrap, "socket.nagle.disable": "true", "log_level": 2}
    common = {"topic": name, "client": client, "seconds": scale.commit_s}

    def commits(*, asynchronous: bool) -> Sample:
        share = {**common, "asynchronous": asynchronous}
        split = [groups[number::PROCESSES] for number in range(PROCESSES)]
        return sample(broker, [Load(module="commit", parameters={**share, "groups": part}) for part in split])

    def one_round() -> dict[str, float]:
        taken = {way: commits(asynchronous=way == "async") for way in ("sync", "async")}
        figures: dict[str, float] = {}
        for way, one in taken.items():
            figures[f"group-commit.{way}"] = one.records / one.wall_s
            figures[f"group-commit.{way}_cpu"] = 1e6 * one.cpu_s / one.records
            figures |= {f"group-commit.{way}.{who}_cores": cores for who, cores in one.cores.items()}
        return figures

    yield one_round


@contextmanager
def _idle(broker: Running, scale: Scale) -> Iterator[Round]:
    """Memory grows once, when the groups are made first: so it is counted from before the first round."""
    before = broker.rss_bytes()
    parameters = {"address": broker.address, "count": scale.idle_groups, "interval_s": BEAT_S}
    load = Load(module="idle_groups", parameters={**parameters, "seconds": scale.idle_groups_s})

    def one_round() -> dict[str, float]:
        resident: list[int] = []
        taken = sample(broker, [load], after=lambda: resident.append(broker.rss_bytes()))
        return {
            "group-idle.cpu": 1e3 * taken.cpu_s / taken.wall_s,
            "group-idle.rss": resident[0] / MIB,
            "group-idle.growth": max(LEAST_GROWTH, resident[0] - before) / MIB,
            **{f"group-idle.{who}_cores": cores for who, cores in taken.cores.items()},
        }

    yield one_round


GROUP_CASES: dict[str, Case] = {
    "group-idle": _idle,
    "group-start": lambda broker, scale: _start(broker, scale, case="group-start", settings=CLASSIC),
    "group-start-848": lambda broker, scale: _start(broker, scale, case="group-start-848", settings=CONSUMER),
    "group-recover": _recover,
    "group-commit": _commit,
}
# Their time is timers of clients, or (idle) grows with the first round: nothing that an unkept round would make truer.
UNREHEARSED = frozenset(GROUP_CASES) - {"group-commit"}
