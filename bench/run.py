"""A whole benchmark run: both brokers, loads in turns, medians of rounds."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import steady_cluster
from bench.acl_cases import ACL_CASES
from bench.acl_cases import SETTINGS as ACL_SETTINGS
from bench.brokers import KAFKA, TIDEMARK, Launch, Running, make_certificates, prepare_kafka, prepare_tidemark
from bench.cases import CASES, QUICK, TLS_CASES, Round, Scale
from bench.cluster_brokers import Cluster
from bench.cluster_cases import Topics
from bench.figures import Rounds
from bench.fresh import CONNECTIONS, FRESH_CASES, fresh_round
from bench.group_cases import GROUP_CASES, UNREHEARSED
from bench.quota_cases import QUOTA_CASES
from bench.spark_cases import SPARK_CASES, UNREHEARSED_SPARK
from bench.steady_cases import STEADY_CASES, UNREHEARSED_STEADY
from bench.transaction_cases import TRANSACTION_CASES

# Groups first: the data loads leave memory behind them, in which a thousand groups would not be seen.
OPTIONAL_CASES = {**TLS_CASES, **ACL_CASES, **QUOTA_CASES}  # only if they are asked for
WARM_CASES = {**GROUP_CASES, **TRANSACTION_CASES, **SPARK_CASES, **CASES, **OPTIONAL_CASES, **STEADY_CASES}
CATCH_UP = "steady-catch-up"
ALL_CASES = (*FRESH_CASES, *WARM_CASES, CATCH_UP)
WARM = replace(QUICK, steady_s=2.0, disk_s=3.0, create_topics=20)
Prepare = Callable[[Path], Launch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. The defaults are a full run of about a quarter of an hour."""

    # Without those that need other brokers: another listener, an authorizer.
    cases: tuple[str, ...] = tuple(case for case in ALL_CASES if case not in OPTIONAL_CASES)
    brokers: tuple[str, ...] = (TIDEMARK, KAFKA)
    rounds: int = 3
    warm_up_s: float = 30.0
    idle_s: float = 10.0
    connections: int = CONNECTIONS
    scale: Scale = field(default_factory=Scale)
    warm_scale: Scale = WARM


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Run:
    """Owns the directory in which brokers live for the length of a run, and what was measured."""

    def __init__(self, plan: Plan, *, directory: Path, jars: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._jars = jars
        # Only where TLS is measured: a listener that is not used would still be loaded.
        certificates = make_certificates(directory / "certificates") if set(plan.cases) & set(TLS_CASES) else None
        more = ACL_SETTINGS if set(plan.cases) & set(ACL_CASES) else None
        prepare: dict[str, Prepare] = {
            TIDEMARK: lambda where: prepare_tidemark(where, certificates=certificates, more=more),
            KAFKA: lambda where: prepare_kafka(where, jars=jars, certificates=certificates, more=more),
        }
        self._prepare = {name: prepare[name] for name in plan.brokers}
        self._lives = 0
        self.rounds: Rounds = {name: {} for name in plan.brokers}

    def execute(self) -> Rounds:
        chosen = set(self._plan.cases)
        if chosen & set(FRESH_CASES):
            self._measure_fresh(chosen)
        if chosen & set(WARM_CASES):
            with ExitStack() as stack:
                self._measure_warm(
                    {name: stack.enter_context(Running(self._launch(name))) for name in self._plan.brokers}
                )
        if CATCH_UP in chosen:
            self._measure_catch_up()
        return self.rounds

    def _launch(self, name: str) -> Launch:
        self._lives += 1
        return self._prepare[name](self._directory / f"{name}-{self._lives}")

    def _keep(self, name: str, values: Mapping[str, float]) -> None:
        for figure, value in values.items():
            self.rounds[name].setdefault(figure, []).append(value)
        say(f"    {name:9} " + ", ".join(f"{figure} {value:,.3g}" for figure, value in values.items()))

    def _measure_fresh(self, chosen: set[str]) -> None:
        plan = self._plan
        for number in range(plan.rounds):
            say(f"  fresh brokers, round {number + 1}")
            for name in plan.brokers:
                launch = self._launch(name)
                self._keep(name, fresh_round(launch, cases=chosen, idle_s=plan.idle_s, connections=plan.connections))

    def _measure_warm(self, brokers: dict[str, Running]) -> None:
        for broker in brokers.values():
            self._warm_up(broker)
        for case in (case for case in self._plan.cases if case in WARM_CASES):
            say(f"  {case}")
            with ExitStack() as stack:
                prepared = {
                    name: stack.enter_context(WARM_CASES[case](broker, self._plan.scale))
                    for name, broker in brokers.items()
                }
                if case not in UNREHEARSED | UNREHEARSED_SPARK | UNREHEARSED_STEADY:
                    for one_round in prepared.values():
                        one_round()  # not kept: files, caches and compilers meet this load for the first time
                self._rounds_in_turns(prepared)

    def _measure_catch_up(self) -> None:
        """Three nodes of each: none of a single node's data or memory is in their way, nor theirs in its."""
        plan = self._plan
        with ExitStack() as stack:
            clusters = [
                stack.enter_context(Cluster(name, self._directory / f"{name}-three", jars=self._jars))
                for name in plan.brokers
            ]
            pairs = [(cluster, Topics(cluster)) for cluster in clusters]
            for cluster, topics in pairs:
                say(f"  warming up three nodes of {cluster.name} for {plan.warm_up_s / 2:.0f} s")
                steady_cluster.warm_up(cluster, topics, seconds=plan.warm_up_s / 2)
            say(f"  {CATCH_UP}")
            for _ in range(plan.rounds):
                for cluster, topics in pairs:
                    self._keep(cluster.name, steady_cluster.catch_up(cluster, topics, plan.scale))

    def _rounds_in_turns(self, prepared: dict[str, Round]) -> None:
        for _ in range(self._plan.rounds):
            for name, one_round in prepared.items():
                self._keep(name, one_round())

    def _warm_up(self, broker: Running) -> None:
        """The chosen loads, small, over and over: cold, a JVM is four times slower on small requests."""
        say(f"  warming up {broker.name} for {self._plan.warm_up_s:.0f} s")
        deadline = time.monotonic() + self._plan.warm_up_s
        while time.monotonic() < deadline:
            for case in (case for case in self._plan.cases if case in WARM_CASES and case != "memory"):
                with WARM_CASES[case](broker, self._plan.warm_scale) as one_round:
                    one_round()
